"""Optimizers that step all parameters at once, as CUDA does by default; tensors without data are stepped one by one.

The kernels for lists of tensors are asked for by device; the answer is made to name tensors without data too.

Source: torch/optim/optimizer.py, ``_default_to_fused_or_foreach``; torch/utils/_foreach_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils import _foreach_utils

from profiler_kit.memory.emulation import Emulation, patch
from profiler_kit.memory.emulation._plain import replaced, wherever_imported


@patch
@contextmanager
def kernels_for_lists(emulation: Emulation) -> Iterator[None]:
    """While it lasts, meta tensors count among those with kernels for lists and fused optimizers."""
    changes = []
    for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"):
        asked = getattr(_foreach_utils, name)
        devices = [*asked(), "meta"]
        changes += wherever_imported(asked, name, lambda devices=devices: devices)
    with replaced(changes):
        yield

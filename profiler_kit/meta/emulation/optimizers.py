"""Optimizers with foreach kernels, which update all parameters at once. CUDA uses them by default, meta tensors do not.

torch looks up by device type whether foreach and fused kernels exist. The patch adds meta to these lists.

Source: torch/optim/optimizer.py, ``_default_to_fused_or_foreach``; torch/utils/_foreach_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils import _foreach_utils

from profiler_kit.meta.emulation import Emulation, patch
from profiler_kit.meta.emulation._patching import changes_in_torch, patched


@patch
@contextmanager
def foreach_on_meta(emulation: Emulation) -> Iterator[None]:
    """Inside the block, torch assumes foreach and fused optimizer kernels for meta tensors."""
    changes = []
    for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"):
        supported_devices = getattr(_foreach_utils, name)
        devices = [*supported_devices(), "meta"]
        changes += changes_in_torch(supported_devices, name, lambda devices=devices: devices)
    with patched(changes):
        yield

"""The count beside fvcore's `FlopCountAnalysis`, module by module, over forward; fvcore traces nothing else.

``--convention fvcore`` applies fvcore's rules to each op; here fvcore itself runs.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from profiler_kit.command_lines import install_command
from profiler_kit.counting.module_calls import output_tensors
from profiler_kit.errors import KitError
from profiler_kit.foreign import installed_version
from profiler_kit.loading import Target
from profiler_kit.loading.tensor_kinds import free_bytes
from profiler_kit.records.counts import CrossCheck, CrossCheckLayer, OpRecord
from profiler_kit.records.paths import parent_path
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.user_code.restoration import restored

PEER: Final = "fvcore"


def cross_check(target: Target, ops: Sequence[OpRecord]) -> CrossCheck:
    """Compare the forward pass of `target` by the kit (`ops`) and by fvcore. Units: MACs; fvcore's figure as it is.

    fvcore needs real tensors, so it runs on a copy of the model on the CPU. The model is restored afterwards. If fvcore cannot
    run, the check has the reason.
    """
    kit: Counter[str] = Counter()
    for op in ops:
        if op.phase == "forward" and op.cost is not None:
            for path in {op.path, *_ancestors(op.path)}:
                kit[path] += op.cost.macs * op.calls
    check = CrossCheck(peer=PEER, version=installed_version("fvcore"), kit_macs=kit[""], peer_macs=None)
    try:
        analysis = _analyze(target)
    except KitError as error:
        return replace(check, failure=error.message, hint=error.hint or "")
    except Exception as error:  # noqa: BLE001 any exception of the peer is part of the comparison
        return replace(check, failure=f"fvcore could not trace the model: {one_line_message(error)}")
    peer = {path: int(analysis.total(f"model.{path}" if path else "model")) for path in target.paths().values()}
    unsupported = ", ".join(
        f"{name.removeprefix('aten::')} ({calls:,})" for name, calls in sorted(analysis.unsupported_ops().items())
    )
    return replace(
        check,
        peer_macs=int(analysis.total()),
        layers=tuple(
            CrossCheckLayer(path=path, kit_macs=kit[path], peer_macs=macs)
            for path, macs in peer.items()
            if kit[path] or macs
        ),
        notes=(f"fvcore reports these ops as unsupported (calls): {unsupported}",) if unsupported else (),
    )


def _ancestors(path: str) -> Iterator[str]:
    while path:
        path = parent_path(path)
        yield path


def _analyze(target: Target) -> Any:
    """fvcore's analysis of the model, without log output and with gradients enabled. Raises KitError if it cannot run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from its imports
            from fvcore.nn import FlopCountAnalysis
    except ImportError as error:
        raise KitError("fvcore is not installed", hint=install_command("fvcore")) from error
    with _disable_current_modes():  # the count may run on fake tensors
        real = _on_real_tensors(target)
        model = _TensorModel(real)
        with restored(real), torch.enable_grad(), real.autocast():  # also restores these settings
            logging.disable(logging.WARNING)
            warnings.simplefilter("ignore")
            analysis = FlopCountAnalysis(model, model.tensors)
            analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
            analysis.total()
    return analysis


def _on_real_tensors(target: Target) -> Target:
    """The target on the CPU. Raises KitError if it cannot be there."""
    if target.device.type != "cpu":
        if target.rebuild is None:
            raise KitError("fvcore needs real tensors, and the model was passed on the meta device")
        weight_bytes = sum(tensor.nbytes for tensor in target.model.parameters())
        if weight_bytes > free_bytes():
            raise KitError(
                f"fvcore needs real tensors, and the weights alone would take {weight_bytes / 1e9:.1f} GB",
                hint="use a smaller batch or configuration",
            )
    return target if target.rebuild is None else target.rebuild("cpu")


class _TensorModel(nn.Module):
    """The target's model with tensors as its only inputs and outputs, as tracing requires."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.model = target.model
        self._values, self._form = tree_flatten((target.batch.args, dict(target.batch.kwargs)))
        self.tensors = tuple(value for value in self._values if isinstance(value, Tensor))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The distinct tensors in the model's output."""
        remaining = iter(tensors)
        values = [next(remaining) if isinstance(value, Tensor) else value for value in self._values]
        args, kwargs = tree_unflatten(values, self._form)
        return tuple(output_tensors(self.model(*args, **kwargs)))

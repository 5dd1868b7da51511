"""Compare the kit's count with fvcore's `FlopCountAnalysis` over forward; fvcore traces nothing else."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_flatten, tree_unflatten

from profiler_kit.command_lines import install_command
from profiler_kit.counting.conventions import Convention, Note, find_convention
from profiler_kit.counting.conventions.fvcore import PREFIX, label, record_functions
from profiler_kit.counting.cross_check.tally import (
    NO_KIT_FORMULA,
    UNEXPLAINED,
    MacPair,
    build_check,
    check_without_rows,
    layer_rows,
    unexplained_row,
    with_failure,
)
from profiler_kit.counting.function_calls import FunctionCalls
from profiler_kit.counting.module_calls import output_tensors
from profiler_kit.counting.operands import OpFacts
from profiler_kit.counting.step import trace_step
from profiler_kit.errors import KitError
from profiler_kit.foreign import installed_version
from profiler_kit.loading import Target
from profiler_kit.loading.tensor_kinds import StepError, free_bytes
from profiler_kit.meta.op_memo import memo_for_modes
from profiler_kit.records.counts import CountPhase, CrossCheck
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.user_code.restoration import restored

PEER: Final = "fvcore"

PER_ELEMENT_OF_NORM: Final = (
    "fvcore adds 4 or 5 per element of a norm (1 or 2 in evaluation) to its MACs; the kit counts FLOPs without MACs"
)
PER_ELEMENT_OF_RESAMPLING: Final = (
    "fvcore adds 1 or 4 per element of upsampling or adaptive pooling to its MACs; the kit counts FLOPs without MACs"
)
BROADCAST: Final = "fvcore does not repeat a broadcast operand"
EINSUM: Final = "fvcore uses NumPy's estimate for the best order, which has four significant digits"
PADDING: Final = "fvcore has no handle for a convolution with string padding (same, valid) and counts 0"
CUSTOM: Final = "a custom autograd function is one op without a handle in fvcore's trace and counts 0"
NO_HANDLE: Final = "fvcore has no handle for this op and counts 0"
COMPLEX: Final = "fvcore counts a complex MAC as 1; the kit counts 4 real MACs"
OUTSIDE_TRACE: Final = "the op ran outside the calls in fvcore's trace, as in a scripted module"
OTHER_FORMULA: Final = "fvcore's handle and the kit have different formulas for this op"
NOT_EXPLAINED: Final = "fvcore's own total differs by this much from its handles on the calls that ran"


@dataclass(slots=True)
class _CallPair(MacPair):
    is_complex: bool = False


class _CallTotals:
    """MACs per function and calling module: the kit's for the ops inside the calls, and fvcore's for the calls."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[str, str], _CallPair] = {}
        self._calls: FunctionCalls | None = None

    def convention(self) -> Convention:
        """The ``kit`` convention with hooks that collect these totals."""
        return replace(find_convention("kit"), function_recorder=self._record_functions, on_op=self._on_op)

    def _record_functions(self, note: Note) -> AbstractContextManager[object]:
        @contextmanager
        def recording() -> Iterator[None]:
            with record_functions(note) as self._calls:
                yield
            self._calls = None

        return recording()

    def _on_op(self, facts: OpFacts, owner: str | int, phase: CountPhase) -> None:
        if phase != "forward" or self._calls is None:
            return
        is_peer_call = facts.op.startswith(PREFIX)
        name = facts.op.removeprefix(PREFIX) if is_peer_call else self._name(facts)
        pair = self.pairs.setdefault((name, str(owner)), _CallPair())
        macs = facts.cost.macs if facts.cost is not None else 0
        if is_peer_call:
            pair.peer_macs += macs
            pair.calls += 1
            return
        pair.kit_macs += macs
        pair.has_kit_formula = pair.has_kit_formula and facts.cost is not None
        pair.is_complex = pair.is_complex or any("complex" in spec.dtype for spec in facts.inputs)

    def _name(self, facts: OpFacts) -> str:
        running = self._calls.running if self._calls is not None else None
        return label(running) if running is not None else facts.op


def cross_check(target: Target, forward_macs: int) -> CrossCheck:
    """Compare the forward pass of `target` by the kit (`forward_macs`) and by fvcore.

    fvcore needs real tensors, so it runs on a copy of the model on the CPU. If the model is too large for that, or fvcore
    is not installed, the rows show the results of fvcore's handles only.
    """
    calls = _CallTotals()
    version = installed_version("fvcore")
    try:
        with restored(target):
            trace = trace_step(target, memo_for_modes(_get_current_dispatch_mode_stack()), calls.convention())
    except (KitError, StepError) as error:  # the step itself has run before
        return check_without_rows(PEER, version, ("forward",), forward_macs, error)
    rows: Iterator[tuple[str, str, CountPhase, _CallPair, str]] = (
        (op, path, "forward", pair, _reason(op, pair)) for (op, path), pair in calls.pairs.items()
    )
    paths = tuple(dict.fromkeys(call.path for call in trace.calls))
    check = build_check(PEER, version, ("forward",), rows, paths)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from its imports
            from fvcore.nn import FlopCountAnalysis
    except ImportError:
        return with_failure(check, "fvcore is not installed", install_command("fvcore"))
    too_large = _too_large(target)
    if too_large:
        return with_failure(check, too_large, "use a smaller batch or configuration")
    try:
        with _disable_current_modes():  # the count may run on fake tensors
            real = target
            if target.rebuild is not None:
                real = target.rebuild("cpu")
    except KitError as error:
        return with_failure(
            check, f"the model could not be built again with the real tensors that fvcore needs: {error.message}"
        )
    try:
        with _disable_current_modes():
            analysis = _analyze(FlopCountAnalysis, real)
        return _with_peer_figures(check, analysis, paths)
    except Exception as error:  # noqa: BLE001 any exception of the peer is part of the comparison
        return with_failure(check, f"fvcore could not trace the model: {one_line_message(error)}")


def _too_large(target: Target) -> str:
    """Why the model cannot run on the CPU; "" if it can."""
    if target.device.type == "cpu":
        return ""
    if target.rebuild is None:
        return "fvcore needs real tensors, and the model was passed on the meta device"
    weight_bytes = sum(tensor.nbytes for tensor in target.model.parameters())
    if weight_bytes > free_bytes():
        return f"fvcore needs real tensors, and the weights alone would take {weight_bytes / 1e9:.1f} GB"
    return ""


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


def _analyze(analysis_class: Any, real: Target) -> Any:
    """Run fvcore's analysis of the model without log output, with gradients enabled; restore the model afterwards."""
    model = _TensorModel(real)
    with restored(real), torch.enable_grad(), real.autocast():  # also restores these settings
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        analysis = analysis_class(model, model.tensors)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        analysis.total()
    return analysis


def _with_peer_figures(check: CrossCheck, analysis: Any, paths: tuple[str, ...]) -> CrossCheck:
    by_handles: Counter[str] = Counter()
    for row in check.rows:
        by_handles[row.op] += row.peer_macs
    by_peer = Counter({name: int(macs) for name, macs in analysis.by_operator().items()})
    differences = {name: by_peer[name] - by_handles[name] for name in (*by_handles, *by_peer)}
    unexplained = tuple(
        unexplained_row(f"{name} {UNEXPLAINED}", macs, NOT_EXPLAINED) for name, macs in differences.items() if macs
    )
    by_path = {path: int(analysis.total(f"model.{path}" if path else "model")) for path in paths}
    unsupported = ", ".join(
        f"{name.removeprefix('aten::')} ({calls:,})" for name, calls in sorted(analysis.unsupported_ops().items())
    )
    return replace(
        check,
        peer_macs=int(analysis.total()),
        rows=(*check.rows, *unexplained),
        layers=layer_rows(check.rows, paths, by_path),
        notes=(f"fvcore reports these ops as unsupported (calls): {unsupported}",) if unsupported else (),
    )


def _reason(op: str, pair: _CallPair) -> str:
    """Why fvcore's MACs for calls of `op` differ from the kit's; "" if they are equal."""
    if pair.kit_macs == pair.peer_macs:
        return ""
    if not pair.has_kit_formula:
        return NO_KIT_FORMULA
    if op in ("batch_norm", "layer_norm", "group_norm", "instance_norm"):
        return PER_ELEMENT_OF_NORM
    if op in ("upsample_nearest2d", "upsample_bilinear2d", "adaptive_avg_pool2d", "grid_sampler"):
        return PER_ELEMENT_OF_RESAMPLING
    if not pair.peer_macs and op.startswith("aten."):
        return OUTSIDE_TRACE
    if not pair.peer_macs:
        return PADDING if op == "conv" else CUSTOM if op.startswith("PythonOp.") else NO_HANDLE
    if pair.is_complex:
        return COMPLEX
    if op == "einsum":
        return EINSUM
    if op == "matmul" and pair.peer_macs < pair.kit_macs:
        return BROADCAST
    return OTHER_FORMULA

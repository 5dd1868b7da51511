"""Compare the kit's count with `torch.utils.flop_counter.FlopCounterMode` over forward, loss and backward."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode

from profiler_kit.counting.conventions import find_convention
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
from profiler_kit.counting.operands import OpFacts
from profiler_kit.counting.step import device_contexts, trace_step
from profiler_kit.devices.device import Device
from profiler_kit.errors import KitError
from profiler_kit.loading import Target
from profiler_kit.loading.tensor_kinds import StepError
from profiler_kit.meta.emulation.library_calls import NoLibraries
from profiler_kit.meta.op_memo import Memo, memo_for_modes
from profiler_kit.records.counts import COUNT_PHASES, CountPhase, CrossCheck, OpRecord, TensorSpec
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.user_code.restoration import restored

PEER: Final = "FlopCounterMode"

NO_FORMULA: Final = "FlopCounterMode has no formula for this op and counts 0"
GROUPED: Final = "FlopCounterMode does not divide the weight gradient of a grouped convolution by its groups"
COMPLEX: Final = "FlopCounterMode counts a complex MAC as 1; the kit counts 4 real MACs"
RECOMPUTED_SCORES: Final = (
    "FlopCounterMode counts the scores again, since the fused kernel recomputes them; the kit counts the four products of "
    "the chain rule"
)
OTHER_FORMULA: Final = "FlopCounterMode and the kit have different formulas for this op"
NOT_EXPLAINED: Final = "FlopCounterMode's own total differs by this much from its formulas on the ops that ran"


_Key = tuple[str, str, CountPhase, tuple[TensorSpec, ...]]


def cross_check(target: Target, ops: Sequence[OpRecord], device: Device | None = None) -> CrossCheck:
    """Compare the step of `target` by the kit (`ops`) and by FlopCounterMode. Units: MACs, half of its FLOPs.

    Both run with the kernels of `device`.
    """
    pairs: dict[_Key, MacPair] = {}
    for op in ops:
        pair = pairs.setdefault((op.op, op.path, op.phase, op.inputs), MacPair())
        pair.calls += op.calls
        pair.has_kit_formula = op.cost is not None
        pair.kit_macs += op.cost.macs * op.calls if op.cost is not None else 0
    covers = COUNT_PHASES if target.info.mode == "train" else ("forward",)
    version = f"torch {torch.__version__}"
    try:
        with restored(target):
            memo: Memo[OpFacts] = memo_for_modes(_get_current_dispatch_mode_stack())
            by_peer = trace_step(target, memo, find_convention("torch"), device=device)
    except (KitError, StepError) as error:  # the step itself has run before
        return check_without_rows(PEER, version, covers, sum(pair.kit_macs for pair in pairs.values()), error)
    for op in by_peer.ops:
        pair = pairs.setdefault((op.op, op.path, op.phase, op.inputs), MacPair())
        pair.peer_macs += op.cost.macs * op.calls if op.cost is not None else 0
    rows = (
        (op, path, phase, pair, reason(op, inputs, pair.kit_macs, pair.peer_macs, has_kit_formula=pair.has_kit_formula))
        for (op, path, phase, inputs), pair in pairs.items()
    )
    paths = tuple(
        dict.fromkeys(call.path for call in by_peer.calls)
    )  # FlopCounterMode has no figure for a module without calls
    check = build_check(PEER, version, covers, rows, paths)
    try:
        counter = _run(target, device)
    except Exception as error:  # noqa: BLE001 any exception of the peer is part of the comparison
        return with_failure(check, f"FlopCounterMode raised {one_line_message(error)}")
    return _with_peer_figures(check, counter, target, paths)


def _run(target: Target, device: Device | None) -> FlopCounterMode:
    """Run the step under FlopCounterMode, with the kernels of `device`; return the counter."""
    batch, training = target.batch, target.info.mode == "train"
    counter = FlopCounterMode(display=False)
    with ExitStack() as stack:
        stack.enter_context(restored(target))
        contexts = stack.enter_context(device_contexts(target, device, NoLibraries(), []))
        stack.enter_context(contexts.kernels())
        stack.enter_context(counter)
        with torch.set_grad_enabled(training), contexts.autocast():
            output = target.model(*batch.args, **batch.kwargs)
        if training:
            labels = target.labels_for(output)  # the kit's count already created them
            with torch.enable_grad(), contexts.autocast():
                loss = target.loss(output, batch, labels)
            contexts.end_forward()
            if loss.requires_grad:
                loss.backward()
    return counter


def _with_peer_figures(check: CrossCheck, counter: FlopCounterMode, target: Target, paths: Sequence[str]) -> CrossCheck:
    total = int(counter.get_total_flops()) // 2
    unexplained_macs = total - sum(row.peer_macs for row in check.rows)
    unexplained = (unexplained_row(UNEXPLAINED, unexplained_macs, NOT_EXPLAINED),) if unexplained_macs else ()
    by_name = {
        name: sum(int(flops) for flops in by_op.values()) // 2 for name, by_op in counter.get_flop_counts().items()
    }
    by_path = dict.fromkeys(paths, 0)
    canonical, root = target.paths(), type(target.model).__name__
    for name, module in target.model.named_modules(
        remove_duplicate=False
    ):  # the peer may use another name of a shared module
        path = canonical.get(id(module))
        if path in by_path:
            by_path[path] += by_name.get(f"{root}.{name}" if name else root, 0)
    return replace(
        check, peer_macs=total, rows=(*check.rows, *unexplained), layers=layer_rows(check.rows, paths, by_path)
    )


def reason(
    op: str, inputs: Sequence[TensorSpec], kit_macs: int, peer_macs: int, *, has_kit_formula: bool = True
) -> str:
    """Why FlopCounterMode's MACs for calls of `op` differ from the kit's; "" if they are equal."""
    if kit_macs == peer_macs:
        return ""
    if not has_kit_formula:
        return NO_KIT_FORMULA
    if not peer_macs:
        return NO_FORMULA
    if any("complex" in spec.dtype for spec in inputs):
        return COMPLEX
    if op == "aten.convolution_backward" and _is_grouped(inputs):
        return GROUPED
    if "attention" in op and "backward" in op and 4 * peer_macs == 5 * kit_macs:
        return RECOMPUTED_SCORES
    return OTHER_FORMULA


def _is_grouped(inputs: Sequence[TensorSpec]) -> bool:
    """Whether a convolution is grouped. Its operands are the output's gradient, the input and the weight."""
    if len(inputs) < 3 or any(len(spec.shape) < 2 for spec in inputs[:3]):
        return False
    channels = {inputs[0].shape[1], inputs[1].shape[1]}
    return channels != set(inputs[2].shape[:2])

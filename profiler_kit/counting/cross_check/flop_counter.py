"""The kit's count beside `torch.utils.flop_counter.FlopCounterMode`, over forward, loss and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode

from profiler_kit.counting.conventions import by_name
from profiler_kit.counting.cross_check.tally import (
    UNEXPLAINED,
    UNKNOWN_TO_KIT,
    Pair,
    build_check,
    failed,
    layers,
    not_followed,
    unexplained_row,
)
from profiler_kit.counting.memo import memo_beside
from profiler_kit.counting.step import trace_step
from profiler_kit.counting.watch import output_tensors
from profiler_kit.errors import KitError
from profiler_kit.loading import Target
from profiler_kit.loading.kinds import StepError
from profiler_kit.loading.place import first_line
from profiler_kit.loading.restore import unchanged
from profiler_kit.records.counts import COUNT_PHASES, CountPhase, CrossCheck, OpRecord, TensorSpec

PEER: Final = "FlopCounterMode"

NO_FORMULA: Final = "FlopCounterMode has no formula for this op, and counts nothing"
GROUPED: Final = "FlopCounterMode does not divide the weight gradient of a grouped convolution by its groups"
COMPLEX: Final = "a complex MAC is four real ones; FlopCounterMode takes it for one"
SCORES_AGAIN: Final = (
    "FlopCounterMode counts the scores once more, as the fused kernel computes them; the kit counts the four products of the "
    "chain rule"
)
OTHERWISE: Final = "the two have other formulas for this op"
NOT_EXPLAINED: Final = "FlopCounterMode itself says this much more or less than its formulas over the ops that ran"


_Key = tuple[str, str, CountPhase, tuple[TensorSpec, ...]]


def cross_check(target: Target, ops: Sequence[OpRecord]) -> CrossCheck:
    """The step of `target` by the kit, whose `ops` these are, and by FlopCounterMode; its FLOPs are two per MAC."""
    pairs: dict[_Key, Pair] = {}
    for op in ops:
        pair = pairs.setdefault((op.op, op.path, op.phase, op.inputs), Pair())
        pair.calls += op.calls
        pair.known = op.cost is not None
        pair.kit_macs += op.cost.macs * op.calls if op.cost is not None else 0
    covers = COUNT_PHASES if target.info.mode == "train" else ("forward",)
    version = f"torch {torch.__version__}"
    try:
        with unchanged(target.model, inputs=output_tensors([target.batch.args, target.batch.kwargs])):
            by_peer = trace_step(target, memo_beside(_get_current_dispatch_mode_stack()), by_name("torch"))
    except (KitError, StepError) as error:  # the step itself has run before
        return not_followed(PEER, version, covers, sum(pair.kit_macs for pair in pairs.values()), error)
    for op in by_peer.ops:
        pair = pairs.setdefault((op.op, op.path, op.phase, op.inputs), Pair())
        pair.peer_macs += op.cost.macs * op.calls if op.cost is not None else 0
    rows = (
        (op, path, phase, pair, reason(op, inputs, pair.kit_macs, pair.peer_macs, known=pair.known))
        for (op, path, phase, inputs), pair in pairs.items()
    )
    paths = tuple(dict.fromkeys(call.path for call in by_peer.calls))  # a module never called has no figure there
    check = build_check(PEER, version, covers, rows, paths)
    try:
        counter = _run(target)
    except Exception as error:  # noqa: BLE001 whatever it ends in is what it says of this model
        return failed(check, f"FlopCounterMode ended with {first_line(error)}")
    return _told(check, counter, target, paths)


def _run(target: Target) -> FlopCounterMode:
    """FlopCounterMode after the step."""
    batch, training = target.batch, target.info.mode == "train"
    counter = FlopCounterMode(display=False)
    with unchanged(target.model, inputs=output_tensors([batch.args, batch.kwargs])), counter:
        with torch.set_grad_enabled(training), target.autocast():
            output = target.model(*batch.args, **batch.kwargs)
        if training:
            labels = target.labels_for(output)  # made by the kit's own count already
            with torch.enable_grad(), target.autocast():
                loss = target.loss(output, batch, labels)
            if loss.requires_grad:
                loss.backward()
    return counter


def _told(check: CrossCheck, counter: FlopCounterMode, target: Target, paths: Sequence[str]) -> CrossCheck:
    total = int(counter.get_total_flops()) // 2
    rest = total - sum(row.peer_macs for row in check.rows)
    left = (unexplained_row(UNEXPLAINED, rest, NOT_EXPLAINED),) if rest else ()
    said = {name: sum(int(flops) for flops in by_op.values()) // 2 for name, by_op in counter.get_flop_counts().items()}
    by_path = dict.fromkeys(paths, 0)
    canonical, root = target.paths(), type(target.model).__name__
    for name, module in target.model.named_modules(remove_duplicate=False):  # it may have a shared one by another name
        path = canonical.get(id(module))
        if path in by_path:
            by_path[path] += said.get(f"{root}.{name}" if name else root, 0)
    return replace(check, peer_macs=total, rows=(*check.rows, *left), layers=layers(check.rows, paths, by_path))


def reason(op: str, inputs: Sequence[TensorSpec], kit_macs: int, peer_macs: int, *, known: bool = True) -> str:
    """Why FlopCounterMode's figure of calls of `op` is not the kit's; empty where it is."""
    if kit_macs == peer_macs:
        return ""
    if not known:
        return UNKNOWN_TO_KIT
    if not peer_macs:
        return NO_FORMULA
    if any("complex" in spec.dtype for spec in inputs):
        return COMPLEX
    if op == "aten.convolution_backward" and _is_grouped(inputs):
        return GROUPED
    if "attention" in op and "backward" in op and 4 * peer_macs == 5 * kit_macs:
        return SCORES_AGAIN
    return OTHERWISE


def _is_grouped(inputs: Sequence[TensorSpec]) -> bool:
    """Whether a convolution's channels do not all meet: its operands are the output's gradient, its input and its weight."""
    if len(inputs) < 3 or any(len(spec.shape) < 2 for spec in inputs[:3]):
        return False
    channels = {inputs[0].shape[1], inputs[1].shape[1]}
    return channels != set(inputs[2].shape[:2])

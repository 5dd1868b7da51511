"""Model FLOPs, the numerator of model FLOPs utilization (MFU): the work that the model requires, not the ops that run.

Forward counts contractions with dense attention; backward counts twice that. Recomputation, the loss, pointwise ops and
embedding lookups count 0. Frozen layers count like others, so the figure depends on the model alone. A decoder with N
parameters in matrix products, L layers and H heads of Q features needs ``6 N + 12 L H Q T`` FLOPs per token of a sequence
of T tokens.

Source: Chowdhery et al., PaLM: Scaling Language Modeling with Pathways, appendix B (arXiv 2204.02311).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.counting.conventions import Convention, OpCall, with_work
from profiler_kit.records.counts import Cost, OpRecord

BACKWARD_OP: Final = "model_flops.backward"
BACKWARD_FACTOR: Final = 2


def op_cost(call: OpCall) -> Cost | None:
    """The MACs of the call, without its other FLOPs."""
    return None if call.kit_cost is None else with_work(call.kit_cost, macs=call.kit_cost.macs)


def adjust_step(ops: Sequence[OpRecord], training: bool) -> tuple[OpRecord, ...]:
    """Keep forward, keep only bytes of other phases, and in training add twice each module's forward as its backward."""
    adjusted = [
        op if op.phase == "forward" or op.cost is None else op._replace(cost=with_work(op.cost, macs=0)) for op in ops
    ]
    if not training:
        return tuple(adjusted)
    forward: dict[str, int] = {}
    for op in ops:
        if op.phase == "forward" and op.cost is not None and op.cost.macs:
            forward[op.path] = forward.get(op.path, 0) + op.cost.macs * op.calls
    backward = [
        OpRecord(
            op=BACKWARD_OP, path=path, phase="backward", inputs=(), outputs=(),
            cost=with_work(None, macs=BACKWARD_FACTOR * macs),
        )
        for path, macs in forward.items()
    ]  # fmt: skip
    return (*adjusted, *backward)


CONVENTION = Convention(
    name="model-flops",
    sentence=(
        "Model FLOPs, as used for MFU (PaLM, appendix B): 2 per MAC of forward contractions with dense attention; backward "
        "twice forward; recompute and loss 0. Bytes are counted as in kit."
    ),
    unit="2 FLOPs per MAC",
    counts="forward contractions with dense attention; 0 for lookups, pointwise ops and the loss",
    backward="twice forward, also for frozen layers; 0 for recompute",
    use="MFU; the 6 N D of scaling laws",
    op_cost=op_cost,
    adjust_step=adjust_step,
)

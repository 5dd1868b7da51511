"""Model FLOPs, as model FLOPs utilisation (MFU) divides them by time: what the mathematics asks for, not what runs.

Forward contractions with dense attention; backward twice that. Recomputed work, the loss, everything pointwise and
lookups of embeddings count nothing, and frozen layers count like any, so that the figure depends on the model alone. For a
decoder of N parameters in matrix products, L layers, H heads of Q features, it is ``6 N + 12 L H Q T`` per token of a
sequence of T tokens.

Source: Chowdhery et al., PaLM: Scaling Language Modeling with Pathways, appendix B (arXiv 2204.02311).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.counting.conventions import Convention, OpCall, work
from profiler_kit.records.counts import Cost, OpRecord

BACKWARD_OP: Final = "model_flops.backward"
BACKWARD_FACTOR: Final = 2


def restate(call: OpCall) -> Cost | None:
    """The call's contractions alone."""
    return None if call.own is None else work(call.own, macs=call.own.macs)


def settle(ops: Sequence[OpRecord], training: bool) -> tuple[OpRecord, ...]:
    """Forward as it is, other phases with their bytes alone, and in training each module's backward at twice its forward."""
    kept = [op if op.phase == "forward" or op.cost is None else op._replace(cost=work(op.cost, macs=0)) for op in ops]
    if not training:
        return tuple(kept)
    forward: dict[str, int] = {}
    for op in ops:
        if op.phase == "forward" and op.cost is not None and op.cost.macs:
            forward[op.path] = forward.get(op.path, 0) + op.cost.macs * op.calls
    made = [
        OpRecord(
            op=BACKWARD_OP, path=path, phase="backward", inputs=(), outputs=(), cost=work(None, macs=BACKWARD_FACTOR * macs)
        )
        for path, macs in forward.items()
    ]  # fmt: skip
    return (*kept, *made)


CONVENTION = Convention(
    name="model-flops",
    sentence=(
        "Model FLOPs, as MFU takes them (PaLM, appendix B): 2 per MAC of forward contractions, attention dense; backward twice "
        "forward, recompute and loss nothing; bytes are the kit's."
    ),
    unit="2 FLOPs per MAC",
    counts="forward contractions, attention dense; lookups, pointwise work and the loss nothing",
    backward="twice forward, frozen layers too; recompute nothing",
    use="MFU; the 6 N D of scaling laws",
    restate=restate,
    settle=settle,
)

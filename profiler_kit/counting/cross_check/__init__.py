"""The kit's count beside those of other counters, run on the same model, and why each difference is there.

A peer is looked at twice: it runs itself, and its formulas run over the ops that the kit sees. The second says where a
figure comes from, the first that it is the peer's; what only the first has is told as not explained.
"""

from __future__ import annotations

from collections.abc import Sequence

from profiler_kit.counting.cross_check import flop_counter, fvcore
from profiler_kit.loading import Target
from profiler_kit.records.counts import CrossCheck, OpRecord


def cross_checks(target: Target, ops: Sequence[OpRecord]) -> tuple[CrossCheck, ...]:
    """One per peer: `ops` are those of the step by the kit's own convention. The model is left as it was."""
    forward_macs = sum(op.cost.macs * op.calls for op in ops if op.phase == "forward" and op.cost is not None)
    return (flop_counter.cross_check(target, ops), fvcore.cross_check(target, forward_macs))

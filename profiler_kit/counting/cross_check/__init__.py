"""Compare the kit's count with other counters on the same model, and explain each difference.

Each peer is evaluated twice: the peer runs itself, and its formulas run on the ops that the kit records. The formulas give
every difference an op, a module and a reason. A difference between the two evaluations is a row "(not explained)".
"""

from __future__ import annotations

from collections.abc import Sequence

from profiler_kit.counting.cross_check import flop_counter, fvcore
from profiler_kit.devices.device import Device
from profiler_kit.loading import Target
from profiler_kit.records.counts import CrossCheck, OpRecord


def cross_checks(target: Target, ops: Sequence[OpRecord], device: Device | None = None) -> tuple[CrossCheck, ...]:
    """One cross-check per peer. The model is restored afterwards.

    `ops` are the step's ops under the ``kit`` convention, with the kernels of `device` or, without one, as the tensors run them.
    """
    forward_macs = sum(op.cost.macs * op.calls for op in ops if op.phase == "forward" and op.cost is not None)
    return (flop_counter.cross_check(target, ops, device), fvcore.cross_check(target, forward_macs))

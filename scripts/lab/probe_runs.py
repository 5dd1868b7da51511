"""Measures one case of the grid op by op: forward and backward, first and steady."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from scripts.lab import (
    probe_functions,  # noqa: F401  (it enters its builders)
    probe_layers,  # noqa: F401  (likewise)
)
from scripts.lab.probe_case import BUILDERS, Case, Work
from scripts.lab.probe_device import SLOW_S, STUCK_S, Meter, OpMeter, configured, tensors_of

MOST_OPS: Final = 100


def measured(case: Case, meter: Meter) -> dict[str, Any]:
    """Every op's figures in the first and in the steady pass, the phases' totals, and the allocations of what took any.

    A pass that is slow is the case's last: `slow_s` says how long it took. A first pass that is stuck stands for both.
    """
    dtype = str(case.parameters.get("dtype", "tf32"))
    with configured(dtype, deterministic=case.deterministic):
        meter.wait()
        work, leaves = BUILDERS[case.name](meter.device, **case.parameters)
        first = _pass(work, leaves, meter, frozenset())
        steady = first if first.took_s > STUCK_S else _pass(work, leaves, meter, frozenset())
        row: dict[str, Any] = {"totals": [first.totals, steady.totals]}
        aligned = [op[:2] for op in first.ops] == [op[:2] for op in steady.ops]
        earlier = first.ops if aligned else steady.ops
        rows = [
            [i, *op, None if op[3] == was[3] else was[3]]
            for i, (op, was) in enumerate(zip(steady.ops, earlier, strict=True))
        ]
        if len(rows) > MOST_OPS:
            row["left_out"] = len(rows) - MOST_OPS
            rows = sorted(sorted(rows, key=lambda op: -hidden(op[4]))[:MOST_OPS], key=lambda op: op[0])
        row["ops"] = rows
        row["aligned"] = aligned
        if steady.unmetered:
            row["unmetered"] = steady.unmetered
        if steady.took_s > SLOW_S:
            row["slow_s"] = round(steady.took_s, 3)
            return row
        taking = [i for i, op in enumerate(steady.ops) if hidden(op[3]) >= 512]
        if taking and meter.tracing:
            events = _pass(work, leaves, meter, frozenset(taking[:24])).events
            row["ev"] = {str(i): e for i, e in events.items()}
        meter.wait()
    return row


def hidden(figures: list[int]) -> int:
    """What an op took and gave back, or keeps without returning it: whichever is more."""
    peak, growth, returned, _ = figures
    return max(peak - max(growth, 0), growth - returned)


@dataclass(frozen=True, slots=True)
class _Passed:
    """What one pass told."""

    ops: list[list[Any]]
    totals: dict[str, list[int]]
    events: dict[int, list[Any]]
    unmetered: int
    took_s: float


def _pass(work: Work, leaves: list[Tensor], meter: Meter, traced: frozenset[int]) -> _Passed:
    """Forward, and backward unless nothing asks for it or forward was stuck."""
    totals: dict[str, list[int]] = {}
    meter.reset()
    started = time.perf_counter()
    with OpMeter(meter, traced) as ops:
        result = work()
        totals["fwd"] = ops.phase_total()
        if leaves and time.perf_counter() - started <= STUCK_S:
            ops.phase = "bwd"
            out = [t for t in tensors_of(result) if t.requires_grad]
            seeds = [torch.ones_like(t) for t in out]
            ops.phase_total()
            gradients = torch.autograd.grad(out, leaves, seeds, retain_graph=True, allow_unused=True)
            totals["bwd"] = ops.phase_total()
            del gradients, out, seeds
        del result
    return _Passed(ops.ops, totals, ops.events, ops.unmetered, time.perf_counter() - started)

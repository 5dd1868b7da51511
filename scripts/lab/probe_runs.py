"""Measurement of one case of the grid op by op: forward and backward, first and steady pass."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from scripts.lab import (
    probe_functions,  # noqa: F401  (registers its builders)
    probe_layers,  # noqa: F401  (registers its builders)
)
from scripts.lab.probe_case import BUILDERS, Case, Work
from scripts.lab.probe_device import SLOW_S, STUCK_S, Meter, OpMeter, library_flags, tensors_of

MAX_OPS: Final = 100


def measure_case(case: Case, meter: Meter) -> dict[str, Any]:
    """The figures of every op in the first and the steady pass, the phases' totals, and the allocations of the largest ops.

    A slow pass ends the case, with its time in `slow_s`. A very slow first pass also counts as the steady one.
    """
    dtype = str(case.parameters.get("dtype", "tf32"))
    with library_flags(dtype, deterministic=case.deterministic):
        meter.wait()
        work, leaves = BUILDERS[case.name](meter.device, **case.parameters)
        first = _pass(work, leaves, meter, frozenset())
        steady = first if first.took_s > STUCK_S else _pass(work, leaves, meter, frozenset())
        row: dict[str, Any] = {"totals": [first.totals, steady.totals]}
        aligned = [op[:2] for op in first.ops] == [op[:2] for op in steady.ops]
        earlier = first.ops if aligned else steady.ops
        rows = [
            [i, *op, None if op[3] == earlier_op[3] else earlier_op[3]]
            for i, (op, earlier_op) in enumerate(zip(steady.ops, earlier, strict=True))
        ]
        if len(rows) > MAX_OPS:
            row["left_out"] = len(rows) - MAX_OPS
            rows = sorted(sorted(rows, key=lambda op: -temporary_bytes(op[4]))[:MAX_OPS], key=lambda op: op[0])
        row["ops"] = rows
        row["aligned"] = aligned
        if steady.unmetered:
            row["unmetered"] = steady.unmetered
        if steady.took_s > SLOW_S:
            row["slow_s"] = round(steady.took_s, 3)
            return row
        taking = [i for i, op in enumerate(steady.ops) if temporary_bytes(op[3]) >= 512]
        if taking and meter.tracing:
            events = _pass(work, leaves, meter, frozenset(taking[:24])).events
            row["ev"] = {str(i): e for i, e in events.items()}
        meter.wait()
    return row


def temporary_bytes(figures: list[int]) -> int:
    """An op's temporary memory: bytes freed before it returns, or kept but not returned, whichever is more."""
    peak, growth, returned, _ = figures
    return max(peak - max(growth, 0), growth - returned)


@dataclass(frozen=True, slots=True)
class _PassResult:
    """The figures of one pass."""

    ops: list[list[Any]]
    totals: dict[str, list[int]]
    events: dict[int, list[Any]]
    unmetered: int
    took_s: float


def _pass(work: Work, leaves: list[Tensor], meter: Meter, traced: frozenset[int]) -> _PassResult:
    """Run forward, then backward unless no leaf needs gradients or forward was too slow."""
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
    return _PassResult(ops.ops, totals, ops.events, ops.unmetered, time.perf_counter() - started)

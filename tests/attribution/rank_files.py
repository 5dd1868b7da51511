"""What files contribute, made by hand, and traces of ranks with work put in between."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from profiler_kit.attribution.rank_extract import Activity, Collective, Collectives, RankExtract, Steps
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.intervals import Intervals

# start and end of a collective of the usual kind and group, in ns
Times = tuple[int, int]


def summary(file: str, rank: int | None, world_size: int | None) -> TraceSummary:
    return TraceSummary(
        file=file, clock="device", events=0, device_events=0, span_ns=0, busy_ns=0, idle_ns=0, sum_ns=0, linked=0,
        unlinked_ns=0, aligned_ns=0, unattributed_ns=0, moduleless_ns=0, step_ns=None, host_step_ns=None, rank=rank,
        world_size=world_size,
    )  # fmt: skip


def extract(
    rank: int | None,
    collectives: Mapping[int, Sequence[Times]],
    *,
    world_size: int | None = None,
    file: str | None = None,
    step_ns: int = 1_000_000,
    complete: Sequence[int] | None = None,
    activity_ns: Mapping[Activity, int] | None = None,
    group: str = "0",
    backend: str = "nccl",
    sizes: Sequence[int] = (8,),
    clock_ns: int = 0,
) -> RankExtract:
    """The file of a rank: per step the collectives, which nothing covers. Their sizes are `sizes` in turn.

    Times count from the step's begin, which is `step_ns` after the last one's.
    """
    numbers = sorted(collectives)
    flat = [
        (number, i, (times[0] + place * step_ns, times[1] + place * step_ns))
        for place, number in enumerate(numbers)
        for i, times in enumerate(collectives[number])
    ]
    starts = np.array([times[0] for _, _, times in flat], np.int64) + clock_ns
    ends = np.array([times[1] for _, _, times in flat], np.int64) + clock_ns
    in_step = np.array([sum(e - s for s, e in collectives[number]) for number in numbers], np.int64)
    period = np.full(len(numbers), step_ns, np.int64)
    activities = activity_ns or {}
    return RankExtract(
        summary=summary(file or f"rank{rank}.json.gz", rank, world_size),
        steps=Steps(
            number=np.array(numbers, np.int64),
            start_ns=np.arange(len(numbers), dtype=np.int64) * step_ns,
            period_ns=period,
            complete=np.array([complete is None or number in complete for number in numbers], np.bool_),
            compute_ns=period - in_step,
            communication_ns=in_step,
            exposed_ns=in_step,
            idle_ns=np.zeros(len(numbers), np.int64),
            activities=tuple(activities),
            activity_ns=np.array([list(activities.values())] * len(numbers), np.int64).reshape(
                len(numbers), len(activities)
            ),
        ),
        collectives=Collectives(
            keys=tuple(Collective("all_reduce", group, size) for size in sizes),
            key=np.array([i % len(sizes) for _, i, _ in flat], np.int32),
            step=np.array([number for number, _, _ in flat], np.int64),
            start_ns=starts,
            end_ns=ends,
        ),
        exposed=Intervals(starts, ends),
        backend=backend,
    )


def load(path: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return written


def save(written: Mapping[str, Any], path: Path) -> Path:
    path.write_bytes(gzip.compress(json.dumps(written).encode(), 1))
    return path


def collective_kernels(written: Mapping[str, Any]) -> list[dict[str, Any]]:
    """NCCL's kernels in order."""
    result = [e for e in written["traceEvents"] if e.get("cat") == "kernel" and "nccl" in e["name"]]
    return sorted(result, key=lambda e: e["ts"])


def stretched(written: Mapping[str, Any], at: float, by: float) -> dict[str, Any]:
    """The trace with `by` us put in at `at`: what begins later is later, what goes on then takes longer."""
    events = []
    for e in written["traceEvents"]:
        if "ts" not in e:
            events.append(e)
        elif e["ts"] >= at:
            events.append({**e, "ts": e["ts"] + by})
        elif e["ts"] + e.get("dur", 0) > at:
            events.append({**e, "dur": e["dur"] + by})
        else:
            events.append(e)
    return {**written, "traceEvents": events}


def with_work(written: Mapping[str, Any], at: float, by: float, number: int) -> dict[str, Any]:
    """The trace with `by` us of work before what the device does from `at` on: an operator, its launch and its kernel.

    The operator is on the thread that launches the next collective.
    """
    longer = stretched(written, at, by)
    waits = next(kernel for kernel in collective_kernels(longer) if kernel["ts"] >= at)
    launch = next(
        e
        for e in longer["traceEvents"]
        if e.get("args", {}).get("correlation") == waits["args"]["correlation"] and e is not waits
    )
    host, device = {"ph": "X", "pid": launch["pid"], "tid": launch["tid"]}, waits["pid"]
    correlation = 90_000_000 + number
    longer["traceEvents"] += [
        {**host, "cat": "cpu_op", "name": "aten::extra_work", "ts": at + 0.25, "dur": 1.5, "args": {}},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 0.5, "dur": 1.0,
         "args": {"correlation": correlation}},
        {"ph": "X", "cat": "kernel", "name": "extra_kernel", "pid": device, "tid": 7, "ts": at + 2, "dur": by - 2,
         "args": {"device": device, "stream": 7, "correlation": correlation}},
    ]  # fmt: skip
    return longer

"""Compares the traces of two jobs with several ranks each: rank by rank matched, and their mean held against the other's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from statistics import median
from typing import Any

from profiler_kit.comparison.traces import compare_traces
from profiler_kit.errors import NotComparableError
from profiler_kit.records.report import TraceReport
from profiler_kit.records.sums import added
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.records.traces import PhaseTime, TraceStep, TraceSummary


def traces_by_rank(report: TraceReport) -> dict[int, TraceSummary]:
    """The traces of `report` by their rank; empty where they are not ranks of one job."""
    if report.ranks is None:
        return {}
    by_file = {trace.file: trace for trace in report.traces}
    return {row.rank: by_file[row.file] for row in report.ranks.ranks if row.file in by_file}


def compare_ranks(
    a: Mapping[int, TraceSummary], b: Mapping[int, TraceSummary], *, names: tuple[str, str]
) -> TraceComparison:
    """What differs between the mean ranks of two jobs, over the ranks that both have. `names`: of the two, as files are named.

    Raises:
        NotComparableError: they have no rank in common, or one's traces hold different numbers of steps or other clocks.
    """
    common = sorted(a.keys() & b.keys())
    if not common:
        raise NotComparableError(
            f"no rank is in both: {_ranks(sorted(a))} and {_ranks(sorted(b))}", hint="give traces of the same ranks"
        )
    ours, theirs = (_together([side[rank] for rank in common], name) for side, name in zip((a, b), names, strict=True))
    compared = compare_traces(ours, theirs, ranks=len(common))
    said = [f"Times are means over {_ranks(common)}; calls are those of all together."]
    left = sorted((a.keys() | b.keys()) - set(common))
    if left:
        said.append(f"{_ranks(left).capitalize()} {'is' if len(left) == 1 else 'are'} only in one and left out.")
    return replace(compared, notes=(*said, *compared.notes))


def _together(traces: Sequence[TraceSummary], name: str) -> TraceSummary:
    """The ranks' traces as one: times added up, steps the mean of the ranks'."""
    first = traces[0]
    if any(trace.clock != first.clock for trace in traces):
        raise NotComparableError(
            "some of its ranks have work of a device and some have not", where=name, hint="record all the same way"
        )
    counts = {len(trace.steps) for trace in traces}
    if len(counts) > 1:
        raise NotComparableError(
            f"its ranks' traces hold {min(counts)} to {max(counts)} steps",
            where=name,
            hint="record the same steps on all ranks, or compare two ranks: profiler-kit compare A.json.gz B.json.gz",
        )
    steps = [trace.step_ns for trace in traces if trace.step_ns is not None]
    marks = [trace.host_step_ns for trace in traces if trace.host_step_ns is not None]
    return added(
        traces,
        *("events", "device_events", "span_ns", "busy_ns", "idle_ns", "sum_ns", "linked"),
        *("unlinked_ns", "aligned_ns", "unattributed_ns", "moduleless_ns"),
        file=str(PurePath(name)),
        rank=None,
        step_ns=round(median(steps)) if steps else None,
        host_step_ns=round(median(marks)) if marks else None,
        devices=tuple(dict.fromkeys(device for trace in traces for device in trace.devices)),
        steps=tuple(_mean_step(same) for same in zip(*(trace.steps for trace in traces), strict=True)),
        phases=_phases(traces),
        idle=tuple(idle for trace in traces for idle in trace.idle),
        streams=(),
        modules=tuple(module for trace in traces for module in trace.modules),
        operators=tuple(operator for trace in traces for operator in trace.operators),
        kernels=tuple(kernel for trace in traces for kernel in trace.kernels),
        syncs=tuple(sync for trace in traces for sync in trace.syncs),
        queue=None,
        communication=None,
        peak_allocated_bytes=None,
        has_modules=all(trace.has_modules for trace in traces),
    )


def _mean_step(same: Sequence[TraceStep]) -> TraceStep:
    """The mean of the ranks' steps at one place; what one of them does not tell is not told."""
    times = ("host_ns", "device_ns", "kernel_ns", "idle_ns")
    whole = added(same, *times, steady=all(step.steady for step in same))
    sums = {field: getattr(whole, field) for field in times}
    means: dict[str, Any] = {field: None if ns is None else ns // len(same) for field, ns in sums.items()}
    return replace(whole, **means)


def _phases(traces: Sequence[TraceSummary]) -> tuple[PhaseTime, ...]:
    by_phase: defaultdict[str, list[PhaseTime]] = defaultdict(list)
    for timing in (timing for trace in traces for timing in trace.phases):
        by_phase[timing.phase].append(timing)
    fields = ("host_ns", "kernel_ns", "sum_ns", "idle_ns", "wait_ns", "events")
    return tuple(added(timings, *fields) for timings in by_phase.values())


def _ranks(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers))}"

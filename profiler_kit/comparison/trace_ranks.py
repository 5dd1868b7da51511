"""Comparison of two distributed jobs by their traces: ranks are matched by number, and the means over ranks are compared."""

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
from profiler_kit.records.sums import sum_fields
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.records.traces import PhaseTime, TraceStep, TraceSummary


def traces_by_rank(report: TraceReport) -> dict[int, TraceSummary]:
    """The traces of `report` by rank; empty if they are not ranks of one job."""
    if report.ranks is None:
        return {}
    by_file = {trace.file: trace for trace in report.traces}
    return {row.rank: by_file[row.file] for row in report.ranks.ranks if row.file in by_file}


def compare_ranks(
    a: Mapping[int, TraceSummary], b: Mapping[int, TraceSummary], *, names: tuple[str, str]
) -> TraceComparison:
    """Compare the means of two jobs over the ranks that both have. `names`: the two jobs' file or folder names.

    Raises:
        NotComparableError: the jobs have no rank in common, or the traces of one job differ in clock or number of steps.
    """
    common = sorted(a.keys() & b.keys())
    if not common:
        raise NotComparableError(
            f"no rank is in both jobs: {_ranks(sorted(a))} and {_ranks(sorted(b))}",
            hint="give traces of the same ranks",
        )
    a_sum, b_sum = (_sum_ranks([side[rank] for rank in common], name) for side, name in zip((a, b), names, strict=True))
    comparison = compare_traces(a_sum, b_sum, ranks=len(common))
    rank_notes = [f"Times are means over {_ranks(common)}. Calls are sums over these ranks."]
    unmatched = sorted((a.keys() | b.keys()) - set(common))
    if unmatched:
        rank_notes.append(
            f"{_ranks(unmatched).capitalize()} {'is' if len(unmatched) == 1 else 'are'} in one job only and left out."
        )
    return replace(comparison, notes=(*rank_notes, *comparison.notes))


def _sum_ranks(traces: Sequence[TraceSummary], name: str) -> TraceSummary:
    """One summary for all ranks of a job: times are sums, steps are means over the ranks."""
    first = traces[0]
    if any(trace.clock != first.clock for trace in traces):
        raise NotComparableError(
            "some of its ranks have device work and some have only host work",
            where=name,
            hint="record all ranks with the same profiler activities",
        )
    counts = {len(trace.steps) for trace in traces}
    if len(counts) > 1:
        raise NotComparableError(
            f"its ranks' traces contain {min(counts)} to {max(counts)} steps",
            where=name,
            hint="record the same steps on all ranks, or compare the files of one rank each",
        )
    steps = [trace.step_ns for trace in traces if trace.step_ns is not None]
    marks = [trace.host_step_ns for trace in traces if trace.host_step_ns is not None]
    return sum_fields(
        traces,
        *("events", "device_events", "span_ns", "busy_ns", "idle_ns", "sum_ns", "linked"),
        *("unlinked_ns", "aligned_ns", "unattributed_ns", "moduleless_ns"),
        file=str(PurePath(name)),
        rank=None,
        step_ns=round(median(steps)) if steps else None,
        host_step_ns=round(median(marks)) if marks else None,
        devices=tuple(dict.fromkeys(device for trace in traces for device in trace.devices)),
        steps=tuple(_mean_step(rank_steps) for rank_steps in zip(*(trace.steps for trace in traces), strict=True)),
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


def _mean_step(rank_steps: Sequence[TraceStep]) -> TraceStep:
    """The mean of one step over the ranks; a time that one rank lacks is None."""
    time_fields = ("host_ns", "device_ns", "kernel_ns", "idle_ns")
    total = sum_fields(rank_steps, *time_fields, steady=all(step.steady for step in rank_steps))
    sums = {field: getattr(total, field) for field in time_fields}
    means: dict[str, Any] = {field: None if ns is None else ns // len(rank_steps) for field, ns in sums.items()}
    return replace(total, **means)


def _phases(traces: Sequence[TraceSummary]) -> tuple[PhaseTime, ...]:
    by_phase: defaultdict[str, list[PhaseTime]] = defaultdict(list)
    for timing in (timing for trace in traces for timing in trace.phases):
        by_phase[timing.phase].append(timing)
    fields = ("host_ns", "kernel_ns", "sum_ns", "idle_ns", "wait_ns", "events")
    return tuple(sum_fields(timings, *fields) for timings in by_phase.values())


def _ranks(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers))}"

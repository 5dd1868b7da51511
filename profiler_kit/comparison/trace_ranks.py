"""Compares the traces of two jobs with several ranks each: rank by rank matched, and their mean held against the other's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from statistics import median

from profiler_kit.comparison.traces import compare_traces
from profiler_kit.errors import NotComparableError
from profiler_kit.records.report import TraceReport
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
    return replace(
        first,
        file=str(PurePath(name)),
        rank=None,
        events=sum(trace.events for trace in traces),
        device_events=sum(trace.device_events for trace in traces),
        span_ns=sum(trace.span_ns for trace in traces),
        busy_ns=sum(trace.busy_ns for trace in traces),
        idle_ns=sum(trace.idle_ns for trace in traces),
        sum_ns=sum(trace.sum_ns for trace in traces),
        linked=sum(trace.linked for trace in traces),
        unlinked_ns=sum(trace.unlinked_ns for trace in traces),
        aligned_ns=sum(trace.aligned_ns for trace in traces),
        unattributed_ns=sum(trace.unattributed_ns for trace in traces),
        moduleless_ns=sum(trace.moduleless_ns for trace in traces),
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
    count = len(same)
    device = [step.device_ns for step in same if step.device_ns is not None]
    idle = [step.idle_ns for step in same if step.idle_ns is not None]
    return TraceStep(
        number=same[0].number,
        host_ns=sum(step.host_ns for step in same) // count,
        device_ns=sum(device) // count if len(device) == count else None,
        kernel_ns=sum(step.kernel_ns for step in same) // count,
        idle_ns=sum(idle) // count if len(idle) == count else None,
        steady=all(step.steady for step in same),
    )


def _phases(traces: Sequence[TraceSummary]) -> tuple[PhaseTime, ...]:
    found: dict[str, PhaseTime] = {}
    for timing in (timing for trace in traces for timing in trace.phases):
        before = found.get(timing.phase)
        found[timing.phase] = timing if before is None else _both(before, timing)
    return tuple(found.values())


def _both(one: PhaseTime, other: PhaseTime) -> PhaseTime:
    told = None if one.host_ns is None or other.host_ns is None else one.host_ns + other.host_ns
    return PhaseTime(
        phase=one.phase,
        host_ns=told,
        kernel_ns=one.kernel_ns + other.kernel_ns,
        sum_ns=one.sum_ns + other.sum_ns,
        idle_ns=one.idle_ns + other.idle_ns,
        wait_ns=one.wait_ns + other.wait_ns,
        events=one.events + other.events,
    )


def _ranks(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers))}"

"""A step that waits for its batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import phase_shares
from profiler_kit.diagnosis.traced import gravest, idle_ns, on_device
from profiler_kit.diagnosis.words import plural, quoted, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# A loader that keeps up hands its batch over in a few percent of the step.
SHARE: Final = 0.20
# Half of the step: whatever else is made faster, the loader decides.
HIGH: Final = 0.50

# Of the device's time nothing is hidden any more: a twentieth of it is what some workers bring at once.
IDLE: Final = 0.05

LOADER_ADVICE: Final = (
    "Load in other processes and ahead of time: DataLoader(num_workers=4 or more, persistent_workers=True, "
    "prefetch_factor=4, pin_memory=True), cheaper transforms, or a data set that is decoded once."
)

# Classes of PyTorch's iterators (torch/utils/data/dataloader.py), as a trace names them.
ALONE: Final = "_SingleProcessDataLoaderIter"
WORKERS: Final = "_MultiProcessingDataLoaderIter"

DOC = f"""
The target brings a data loader, and by stopwatch fetching the batch takes more than {threshold(SHARE)} of the baseline's step
(`high` from {threshold(HIGH)}). The stopwatch is the right clock here: fetching is the host's own work, or its waiting. On a
device part of it may be hidden behind kernels that are still queued.

In a trace it is what the device waited for data that counts, which nothing hides: more than {threshold(IDLE)} of the span is
`medium`, `high` from {threshold(HIGH)}. The trace names the class of the loader's iterator: with `{ALONE}` the training process
makes the batches itself (`num_workers=0`), and the advice is workers; with `{WORKERS}` there are workers, too few or
too slow. Where two loaders were used, it is the one that took longer.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline."""
    run = report.baseline()
    if run is None:
        return
    share = phase_shares(run, "stopwatch").get("data")
    timing = next((t for t in run.phases if t.phase == "data"), None)
    if share is None or timing is None or timing.stopwatch_ns is None or share <= SHARE:
        return
    yield RULE.finding(
        severity="high" if share >= HIGH else "medium",
        title=f"Fetching the batch takes {percent(share)} of the step",
        explanation=f"In {quoted(run)} the host spends {text(timing.stopwatch_ns, 'ns')} of every step in next(loader)."
        + (" Kernels queued before may still run meanwhile." if run.clock == "kernel" else ""),
        advice=LOADER_ADVICE,
        evidence=(
            Evidence(name="data phase by stopwatch", value=100.0 * share, unit="percent", where=run.config.name),
            Evidence(name="data phase", value=timing.stopwatch_ns, unit="ns", where=run.config.name),
        ),
        weight=share,
    )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the trace whose device waits for data most."""
    if (seen := gravest(report, _waits, lambda share: share)) is None:
        return
    trace, share = seen.trace, seen.found
    waited = idle_ns(trace, "waiting for data")
    loading = trace.phase("data")
    steps = plural(len(trace.steps), "step")
    loader = trace.loaders[0] if trace.loaders else ""
    yield RULE.finding(
        severity="high" if share >= HIGH else "medium",
        title=f"The device waits for data for {percent(share)} of the time",
        explanation=sentences(
            f"{seen.place}It is idle for {text(waited, 'ns')} of {text(trace.span_ns, 'ns')} while the host fetches the next "
            f"batch{f', over {steps}' if trace.steps else ''}.",
            f"The host spends {text(loading.host_ns, 'ns')} in fetching."
            if loading is not None and loading.host_ns
            else "",
            _LOADED.get(loader, ""),
            seen.others(),
        ),
        advice=_ADVICE.get(loader, LOADER_ADVICE),
        evidence=(
            Evidence(name="waiting for data, of the span", value=100.0 * share, unit="percent", where=seen.where),
            Evidence(name="waiting for data", value=waited, unit="ns", where=seen.where),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=seen.where),
        ),
        weight=share,
    )


_LOADED: Final = {
    ALONE: "The training process makes the batches itself (num_workers=0), and launches nothing meanwhile.",
    WORKERS: "The loader has workers, and they do not keep up.",
}
_ADVICE: Final = {
    ALONE: "Load in other processes, ahead of time: DataLoader(num_workers=4 or more, persistent_workers=True, pin_memory=True). "
    "Workers make batches while the device works.",
    WORKERS: "Give the loader more workers (up to the cores that this process has) and a larger prefetch_factor. If all cores "
    "are busy, make each sample cheaper: fewer or cheaper transforms, smaller files, a data set that is decoded once.",
}


def _waits(trace: TraceSummary) -> float | None:
    share = idle_ns(trace, "waiting for data") / trace.span_ns if on_device(trace) else 0.0
    return share if share > IDLE else None


RULE = Rule("data_bound", DOC, check, "place", check_trace)

"""A step that waits for its data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import phase_shares
from profiler_kit.diagnosis.trace_facts import idle_ns, on_device, worst_trace
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# A loader that keeps up delivers its batch in a few percent of the step.
MIN_STEP_SHARE: Final = 0.20
# Above half of the step, the loader decides the speed, however fast the model is.
HIGH_SHARE: Final = 0.50
# Idle time is never hidden behind kernels, so a smaller share matters. Adding a few workers removes this much at once.
MIN_IDLE_SHARE: Final = 0.05

LOADER_ADVICE: Final = (
    "Load batches in other processes and ahead of time: DataLoader(num_workers=4 or more, persistent_workers=True, "
    "prefetch_factor=4, pin_memory=True). Or make each sample cheaper: cheaper transforms, or a data set that is decoded once."
)

# Classes of PyTorch's iterators (torch/utils/data/dataloader.py), as a trace names them.
SINGLE_PROCESS_ITERATOR: Final = "_SingleProcessDataLoaderIter"
WORKER_ITERATOR: Final = "_MultiProcessingDataLoaderIter"

DOC = f"""
Fires when fetching the batch takes more than {limit_percent(MIN_STEP_SHARE)} of the baseline's step by stopwatch (the target must
have a data loader), or when the device of a trace is idle for more than {limit_percent(MIN_IDLE_SHARE)} of the span while it
waits for data.

- `high`: at least {limit_percent(HIGH_SHARE)} of the step or of the span.
- `medium`: otherwise.

The stopwatch is the right clock for fetching, because this is work or waiting on the host. On a device, kernels that are
still queued may hide part of it. The idle time of a trace has no such hidden part.

A trace names the class of the loader's iterator. With `{SINGLE_PROCESS_ITERATOR}` the training process makes the batches
(`num_workers=0`), and the advice is to use workers. With `{WORKER_ITERATOR}` there are workers, but too few or too slow. If a
trace has two loaders, the one that took longer counts.
"""

_LOADER_EXPLANATIONS: Final = {
    SINGLE_PROCESS_ITERATOR: "The training process makes the batches itself (num_workers=0) and launches nothing meanwhile.",
    WORKER_ITERATOR: "The loader has workers, but they are too slow for the device.",
}
_LOADER_ADVICE: Final = {
    SINGLE_PROCESS_ITERATOR: "Load batches in other processes and ahead of time: DataLoader(num_workers=4 or more, "
    "persistent_workers=True, pin_memory=True). Workers make batches while the device is busy.",
    WORKER_ITERATOR: "Give the loader more workers (up to the number of cores of this process) and a larger prefetch_factor. If "
    "all cores are busy, make each sample cheaper: fewer or cheaper transforms, smaller files, or a data set that is decoded "
    "once.",
}


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    if run is None:
        return
    share = phase_shares(run, "stopwatch").get("data")
    timing = next((t for t in run.phases if t.phase == "data"), None)
    if share is None or timing is None or timing.stopwatch_ns is None or share <= MIN_STEP_SHARE:
        return
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE else "medium",
        title=f"Fetching the batch takes {percent(share)} of the step",
        explanation=f"In {quoted_name(run)} the host spends {text(timing.stopwatch_ns, 'ns')} of each step in next(loader)."
        + (" Kernels queued before may still run during this time." if run.clock == "kernel" else ""),
        advice=LOADER_ADVICE,
        evidence=(
            Evidence(name="data phase by stopwatch", value=100.0 * share, unit="percent", where=run.config.name),
            Evidence(name="data phase", value=timing.stopwatch_ns, unit="ns", where=run.config.name),
        ),
        weight=share,
    )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace whose device waits longest for data."""
    if (worst := worst_trace(report, _waiting_share, lambda share: share)) is None:
        return
    trace, share = worst.trace, worst.match
    waiting_ns = idle_ns(trace, "waiting for data")
    loading = trace.phase("data")
    loader = trace.loaders[0] if trace.loaders else ""
    steps = f", over {plural(len(trace.steps), 'step')}" if trace.steps else ""
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE else "medium",
        title=f"The device waits for data for {percent(share)} of the time",
        explanation=join_sentences(
            f"{worst.sentence_prefix}It is idle for {text(waiting_ns, 'ns')} of {text(trace.span_ns, 'ns')} while the "
            f"host fetches the next batch{steps}.",
            f"The host spends {text(loading.host_ns, 'ns')} on fetching."
            if loading is not None and loading.host_ns
            else "",
            _LOADER_EXPLANATIONS.get(loader, ""),
            worst.others_sentence(),
        ),
        advice=_LOADER_ADVICE.get(loader, LOADER_ADVICE),
        evidence=(
            Evidence(name="waiting for data, of the span", value=100.0 * share, unit="percent", where=worst.where),
            Evidence(name="waiting for data", value=waiting_ns, unit="ns", where=worst.where),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=worst.where),
        ),
        weight=share,
    )


def _waiting_share(trace: TraceSummary) -> float | None:
    share = idle_ns(trace, "waiting for data") / trace.span_ns if on_device(trace) else 0.0
    return share if share > MIN_IDLE_SHARE else None


RULE = Rule("data_bound", DOC, check, "place", check_trace)

"""A step that waits for its data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from profiler_kit.diagnosis.idle_time import LONG_CALL_NS, call_name
from profiler_kit.diagnosis.phrases import Advice, advise, limit_percent
from profiler_kit.diagnosis.rule import evidence_of
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.records.claims import idle_claims, phase_claims
from profiler_kit.records.report import Evidence, Report, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# A loader that keeps up delivers its batch in a few percent of the step.
MIN_STEP_SHARE: Final = 0.20
# Above half of the step, the loader decides the speed, however fast the model is.
HIGH_SHARE: Final = 0.50
# Idle time is never hidden behind kernels, so a smaller share matters. Adding a few workers removes this much at once.
MIN_IDLE_SHARE: Final = 0.05

_HOST_CLAIMS: Final = (*idle_claims("waiting for data"), *phase_claims("data"))

_AHEAD: Final = "Load batches in other processes and ahead of time: {code}, with more workers if there are free cores."

# Classes of PyTorch's iterators (torch/utils/data/dataloader.py), as a trace names them.
SINGLE_PROCESS_ITERATOR: Final = "_SingleProcessDataLoaderIter"
WORKER_ITERATOR: Final = "_MultiProcessingDataLoaderIter"

DOC = f"""
Fires if the device is idle for more than {limit_percent(MIN_IDLE_SHARE)} of the step while it waits for data, or, without a
device, if the host fetches data for more than {limit_percent(MIN_STEP_SHARE)} of the time.

- `high`: at least {limit_percent(HIGH_SHARE)} of the time.
- `medium`: otherwise.

On a device, kernels that are still queued may hide a part of the time of fetching that a stopwatch shows. Idle time has no such
hidden part. Without a device nothing is hidden: operators of the data set and the time between them count, and so does fetching
before the first operator of a marked step.

A trace names the class of the loader's iterator. With `{SINGLE_PROCESS_ITERATOR}` the training process makes the batches
(`num_workers=0`), and the advice is to use workers. With `{WORKER_ITERATOR}` there are workers, but too few or too slow. If a
trace has two loaders, the one that took longer counts. In a trace with Python calls, the finding names the call in which most
of the fetching passes.
"""

_LOADER_EXPLANATIONS: Final = {
    SINGLE_PROCESS_ITERATOR: "The training process makes the batches itself (num_workers=0) and does nothing else meanwhile.",
    WORKER_ITERATOR: "The loader has workers, but they make batches more slowly than the step needs them.",
}


def loader_advice(iterator: str, *, pins: bool) -> Advice:
    """Return the advice for a loader whose iterator is of the class `iterator` (empty: unknown). `pins`: into pinned memory."""
    pin = ", pin_memory=True" if pins else ""
    if iterator == WORKER_ITERATOR:
        return advise(
            "Give the loader more workers, up to the number of cores: {code}. If all cores are busy, make each sample cheaper: "
            "fewer or cheaper transforms, smaller files, or a data set that is decoded once.",
            "DataLoader(dataset, num_workers=os.cpu_count(), prefetch_factor=4, persistent_workers=True)",
        )
    if iterator == SINGLE_PROCESS_ITERATOR:
        ahead = advise(_AHEAD, f"DataLoader(dataset, num_workers=4, persistent_workers=True{pin})")
        return ahead.then("Workers make batches while the model runs.")
    ahead = advise(_AHEAD, f"DataLoader(dataset, num_workers=4, persistent_workers=True, prefetch_factor=4{pin})")
    return ahead.then("Or make each sample cheaper: cheaper transforms, or a data set that is decoded once.")


def _data_bound(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    data = _data_time(step)
    if data is None:
        return None
    loader = next(iter(step.trace.loaders), "")
    return StepPart(
        share=data.share,
        share_name="data, share of the time",
        severity=severity_of(data.share, high=HIGH_SHARE),
        title=f"The device waits for data for {percent(data.share)} of the time"
        if step.on_device
        else f"Fetching data takes {percent(data.share)} of the time",
        sentences=(
            f"It is idle for {text(data.ns, 'ns')} of {text(data.total_ns, 'ns')} while the host fetches the next batch, "
            f"{step.per_step}."
            if step.on_device
            else f"The host fetches batches for {text(data.ns, 'ns')} of {text(data.total_ns, 'ns')} {step.per_step}, and the "
            "model does not run meanwhile.",
            _LOADER_EXPLANATIONS.get(loader, ""),
            _longest_call(step.trace),
        ),
        advice=loader_advice(loader, pins=step.on_device),
        measures=(
            ("waiting for data" if step.on_device else "fetching data", data.ns, "ns"),
            ("time", data.total_ns, "ns"),
        ),
        evidence=tuple(_stopwatch_evidence(report)),
        claims=idle_claims("waiting for data") if step.on_device else _HOST_CLAIMS,
    )


def _stopwatch_evidence(report: Report | TraceReport) -> Iterator[Evidence]:
    """Yield the time of next(loader) in the timed steps of a report, of which queued kernels may hide a part."""
    run = report.baseline() if isinstance(report, Report) else None
    if run is not None:
        timing = next((timing for timing in run.timed_phases if timing.phase == "data"), None)
        stopwatch_ns = timing.stopwatch_ns if timing is not None else None
        yield from evidence_of(run.config.name, ("data phase by stopwatch", stopwatch_ns, "ns"))


class _DataTime(NamedTuple):
    """The time for data, `ns` of `total_ns`."""

    ns: int
    total_ns: int

    @property
    def share(self) -> float:
        """The share of the time that data takes."""
        return min(1.0, self.ns / self.total_ns)


def _data_time(step: StepWork) -> _DataTime | None:
    """Return the time that `step` waits for data; None below the limits."""
    trace, waiting_ns = step.trace, step.idle_ns("waiting for data")
    if step.on_device:
        data = _DataTime(waiting_ns, trace.span_ns)
        return data if data.share > MIN_IDLE_SHARE else None
    phase = trace.phase("data")
    if trace.span_ns < LONG_CALL_NS or phase is None:
        return None
    candidates = [_DataTime(waiting_ns + phase.kernel_ns, trace.span_ns)]
    # Marked steps include fetching before the first operator of the trace, which its span does not.
    if (steps_ns := sum(step.host_ns for step in trace.steps)) > 0 and phase.host_ns:
        candidates.append(_DataTime(min(phase.host_ns, steps_ns), steps_ns))
    data = max(candidates, key=lambda data: data.share)
    return data if data.share > MIN_STEP_SHARE else None


def _longest_call(trace: TraceSummary) -> str:
    """Return a sentence about the call in which most of the fetching passes; empty where the trace does not show it."""
    calls = [a for a in trace.activities if a.phase == "data" and a.source and a.ns >= LONG_CALL_NS]
    if not calls:
        return ""
    longest = max(calls, key=lambda activity: activity.ns)
    return f"It spends {text(longest.ns, 'ns')} of it in {call_name(longest)}."


RULE = step_rule("data_bound", DOC, _data_bound, "place", steps=idle_steps)

"""Data on its way to the device: a loader that is too slow, and copies between host and device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.idle_time import LONG_CALL_NS, call_name
from profiler_kit.diagnosis.phrases import Advice, advise, limit_percent, plural
from profiler_kit.diagnosis.rule import evidence_of
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.diagnosis.work_groups import copies_to_device
from profiler_kit.diagnosis.work_sites import site_text
from profiler_kit.records.claims import idle_claims, kernel_claims, phase_claims
from profiler_kit.records.families import is_host_copy
from profiler_kit.records.report import Evidence, Report, TraceReport
from profiler_kit.records.traces import TraceKernel, TraceSummary, WorkSite
from profiler_kit.units import percent, text

# A loader that keeps up delivers its batch in a few percent of the step.
MIN_STEP_SHARE: Final = 0.20
# Idle time is never hidden behind kernels, so a smaller share matters. Adding a few workers removes this much at once.
MIN_IDLE_SHARE: Final = 0.05

_AHEAD: Final = "Load batches in other processes and ahead of time: {code}, with more workers if there are free cores."

# Classes of PyTorch's iterators (torch/utils/data/dataloader.py), as a trace names them.
SINGLE_PROCESS_ITERATOR: Final = "_SingleProcessDataLoaderIter"
WORKER_ITERATOR: Final = "_MultiProcessingDataLoaderIter"


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
        claims=(*idle_claims("waiting for data"), *(() if step.on_device else phase_claims("data"))),
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
    candidates = [_DataTime(waiting_ns + (phase.kernel_ns or 0), trace.span_ns)]
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


DATA_BOUND = step_rule(
    "data_bound",
    _data_bound,
    Shares(0.0, high=0.50),  # above half of the step, the loader decides the speed, however fast the model is
    f"""
Fires if the device is idle for more than {limit_percent(MIN_IDLE_SHARE)} of the step while it waits for data, or, without a
device, if the host fetches data for more than {limit_percent(MIN_STEP_SHARE)} of the time.

On a device, kernels that are still queued may hide a part of the time of fetching that a stopwatch shows. Idle time has no such
hidden part. Without a device nothing is hidden: operators of the data set and the time between them count, and so does fetching
before the first operator of a marked step.

A trace names the class of the loader's iterator. With `{SINGLE_PROCESS_ITERATOR}` the training process makes the batches
(`num_workers=0`), and the advice is to use workers. With `{WORKER_ITERATOR}` there are workers, but too few or too slow. If a
trace has two loaders, the one that took longer counts. In a trace with Python calls, the finding names the call in which most
of the fetching passes.
""",
    topic="place",
    steps=idle_steps,
)

# A batch is a handful of tensors. More copies than this per step are single numbers.
MAX_COPIES_PER_STEP: Final = 50
# A twentieth of the span is worth pinning memory for.
MAX_COPY_SHARE: Final = 0.05
TO_DEVICE: Final = "to the device"
TO_HOST: Final = "to the host"
# Operators that copy between host and device.
COPYING: Final = frozenset({"aten::to", "aten::_to_copy", "aten::copy_", "aten::cpu"})
_PAGEABLE: Final = re.compile("pageable", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Copies:
    """The copies between host and device in one trace.

    `names`: of the copies. `direction`: that of most of their time.
    `idle_ns`: idle time in which the host waits for a copy to the device. `share`: the part of the span
    that both take.
    """

    names: tuple[str, ...]
    direction: str
    calls: int
    copy_ns: int
    idle_ns: int
    pageable_ns: int
    per_step: float
    share: float


def _host_copies(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    copies, facts = _host_device_copies(step.trace), facts_of(step.trace)
    if copies is None:
        return None
    return StepPart(
        share=copies.share,
        share_name="share of the span",
        title=f"{plural(copies.calls, 'copy', 'copies')} between host and device, most of it {copies.direction}, take "
        f"{percent(copies.share)} of the time",
        sentences=(
            f"{_count(copies, facts)}: {text(copies.copy_ns, 'ns')} that no computation hides.",
            _copying_place(step.trace.sites),
            f"Copies from or to pageable memory take {text(copies.pageable_ns, 'ns')} of it, and the host waits for them."
            if copies.pageable_ns
            else "",
            f"The device is idle for {text(copies.idle_ns, 'ns')} more while the host waits for copies to it."
            if copies.idle_ns
            else "",
        ),
        advice=_copy_advice(copies, facts),
        measures=(
            ("copies between host and device", copies.calls, "count"),
            ("time of the copies", copies.copy_ns, "ns"),
            ("time of pageable copies", copies.pageable_ns, "ns"),
        ),
        claims=(*kernel_claims(copies.names), *idle_claims("synchronization")),
    )


def _copying_place(sites: Sequence[WorkSite]) -> str:
    """Return a sentence with the function, or without stacks the loop, that saves most of those that mostly copy."""
    copying = [site for site in sites if {*site.operators[:1], *site.loop.split(", ")} & COPYING]
    named = [site for site in copying if site.source] or [site for site in copying if site.loop]
    place = max(named, key=lambda site: site.saving.median, default=None)
    return f"Most come from {site_text(place)}." if place is not None else ""


def _host_device_copies(trace: TraceSummary) -> _Copies | None:
    kernels = [kernel for kernel in trace.kernels if is_host_copy(kernel.name)]
    if not kernels or trace.clock != "device":
        return None
    calls, copy_ns = sum(kernel.calls for kernel in kernels), _exposed_ns(trace, kernels)
    pageable_ns = min(copy_ns, sum(kernel.kernel_ns for kernel in kernels if _PAGEABLE.search(kernel.name)))
    waiting_ns = sum(i.ns for i in trace.idle if i.cause == "synchronization" and i.phase == "transfer")
    to_device_ns = sum(kernel.kernel_ns for kernel in kernels if copies_to_device(kernel.name))
    copies = _Copies(
        names=tuple(kernel.name for kernel in kernels),
        direction=TO_DEVICE if 2 * to_device_ns >= sum(kernel.kernel_ns for kernel in kernels) else TO_HOST,
        calls=calls,
        copy_ns=copy_ns,
        idle_ns=waiting_ns,
        pageable_ns=pageable_ns,
        per_step=calls / max(1, len(trace.working_steps)),
        share=min(1.0, (copy_ns + waiting_ns) / trace.span_ns),
    )
    # without marked steps the number of steps, and so of copies per step, is unknown
    are_many = copies.per_step > MAX_COPIES_PER_STEP and bool(trace.steps)
    return copies if are_many or copies.share > MAX_COPY_SHARE else None


def _exposed_ns(trace: TraceSummary, copies: Sequence[TraceKernel]) -> int:
    """Return the time of `copies` without the overlap of computation and copies; at least."""
    collectives = trace.communication
    sum_ns = trace.sum_ns - (collectives.sum_ns if collectives is not None else 0)
    union_ns = trace.busy_ns - (collectives.exposed_ns if collectives is not None else 0)
    overlap_ns = max(0, sum_ns - union_ns)
    exposed_ns = max(0, sum(kernel.duration_ns for kernel in copies) - overlap_ns)
    return min(exposed_ns, sum(kernel.kernel_ns for kernel in copies))


def _count(copies: _Copies, facts: Facts) -> str:
    number = text(copies.per_step, "count")
    return f"{number} {'copy' if number == '1' else 'copies'} per step" if facts.has_steps else "Copies"


def _copy_advice(copies: _Copies, facts: Facts) -> Advice:
    pin = "DataLoader(..., pin_memory=True)" if facts.has_loader else "batch.pin_memory()"
    are_many = copies.per_step > MAX_COPIES_PER_STEP
    if not are_many and not copies.pageable_ns and not copies.idle_ns:
        return Advice(
            "Copy less: use smaller types (uint8 images, converted on the device), or create batches on the device."
        )
    parts = []
    if are_many and copies.direction == TO_HOST:
        keep = "Keep these tensors and what is computed from them on the device, or copy them rarely, as one tensor: "
        parts.append(advise(f"{keep}{{code}}.", "torch.cat([x.flatten() for x in tensors]).cpu()"))
    elif are_many:
        together = "Copy many numbers together, as one tensor, or create them on the device: {code}."
        parts.append(advise(together, "torch.zeros(n, device=device)"))
    if copies.pageable_ns and copies.direction == TO_HOST:
        buffer = "Copy into pinned memory without waiting: {code}, and read it later."
        parts.append(advise(buffer, "buffer.copy_(x, non_blocking=True)"))
    elif copies.pageable_ns:
        pinned = "Pin the memory of batches and copy without waiting: {code} and batch.to(device, non_blocking=True)."
        parts.append(advise(pinned, pin))
    elif copies.idle_ns:
        parts.append(advise("Copy without waiting: {code}.", "batch.to(device, non_blocking=True)"))
    return parts[0].then(*(advice.text for advice in parts[1:]))


HOST_COPIES = step_rule(
    "host_copies",
    _host_copies,
    Shares(0.0, medium=MAX_COPY_SHARE, high=0.25),  # a quarter of the time is a large gain for the change of one line
    f"""
Fires on more than {MAX_COPIES_PER_STEP} copies between host and device per step, or if such copies, and the host's waits for
copies to the idle device, take more than {limit_percent(MAX_COPY_SHARE)} of the span.

Copies that overlap with computation cost no time. A trace summary does not say which do, so all overlap of computation counts as
that of copies, and the share is a lower bound.

Each copy costs the host about 10 us. A copy from or to pageable memory goes through a buffer, and the host waits for it.
Without marked steps, the number of copies per step is unknown and only their time counts.
""",
    steps=idle_steps,
)

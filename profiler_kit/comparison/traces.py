"""Comparison of two traces: time by phase, idle cause, module, operator and kernel, with its noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from statistics import median
from typing import Final

from profiler_kit.comparison.trace_alignment import (
    TimedEntry,
    align_entries,
    drop_outermost,
    kernel_key,
    operator_key,
    wrapper_depths,
)
from profiler_kit.comparison.trace_kinds import kind_changes
from profiler_kit.comparison.trace_sentences import notes, sentences
from profiler_kit.errors import NotComparableError
from profiler_kit.records.counts import PSEUDO_PATHS, TRACE_PHASES
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.trace_comparison import TimeChange, TraceComparison, TraceSide
from profiler_kit.records.traces import IDLE_CAUSES, TraceSummary
from profiler_kit.statistics.report_noise import REPORT_DRIFT

NO_PHASE: Final = "(no phase)"
NO_MODULE: Final = "(no module)"
MAX_LABEL_CHARS: Final = 24  # longer file names get the labels A and B, so that columns stay narrow
MIN_STEADY_STEPS: Final = 3  # two steps do not show how far steps scatter


def compare_steps(a: ConfigRun, b: ConfigRun, labels: tuple[str, str]) -> TraceComparison | None:
    """Compare the mean traced steps of two runs as traces are compared; None without idle times, or on different clocks.

    Modules are left out: the comparison of reports aligns the modules of both models.
    """
    steps = a.mean_step, b.mean_step
    if steps[0] is None or steps[1] is None or steps[0].clock != steps[1].clock:
        return None
    if not (steps[0].span_ns and steps[1].span_ns):
        return None
    compared = compare_traces(*(replace(step, has_modules=False) for step in steps if step is not None), labels=labels)
    operators = (
        compared.operators if steps[0].operators and steps[1].operators else ()
    )  # files of earlier versions lack them
    return replace(compared, per="step", operators=operators, sentences=(), notes=())


def compare_traces(
    a: TraceSummary, b: TraceSummary, *, ranks: int = 1, labels: tuple[str, str] | None = None
) -> TraceComparison:
    """Compare two traces, or two sums over the traces of `ranks` ranks, which are divided into means.

    `labels`: names of the sides; None for those of the files.

    Figures are for the whole traces if both hold the same number of marked steps or one has none, else per step.

    Raises:
        NotComparableError: only one trace has device work, or one has no work at all.
    """
    for trace in (a, b):
        if not trace.span_ns:
            raise NotComparableError(
                "the trace contains no timed work", where=trace.file, hint="record it around whole steps"
            )
    if a.clock != b.clock:
        host_trace, device_trace = (a, b) if a.clock == "host" else (b, a)
        raise NotComparableError(
            f"{PurePath(host_trace.file).name} has only host work, {PurePath(device_trace.file).name} has device work: "
            "they share no clock",
            hint="record both on the same kind of device, with ProfilerActivity.CUDA",
        )
    labels = labels or _labels(a.file, b.file)
    sides = (_side(a, labels[0], ranks), _side(b, labels[1], ranks))
    per_step = bool(a.steps) and bool(b.steps) and len(a.working_steps) != len(b.working_steps)
    a_means = _TraceMeans(a, ranks * (len(a.working_steps) if per_step else 1))
    b_means = _TraceMeans(b, ranks * (len(b.working_steps) if per_step else 1))
    phases = tuple(_changes((*TRACE_PHASES, NO_PHASE), a_means.phases, b_means.phases))
    causes = tuple(_changes(IDLE_CAUSES, a_means.causes, b_means.causes))
    busy, idle = _total("busy", phases), _total("idle", causes)
    spreads = [side.spread for side in sides if side.spread is not None]
    noise = max(REPORT_DRIFT, *spreads) if len(spreads) == len(sides) else REPORT_DRIFT
    comparison = TraceComparison(
        a=sides[0],
        b=sides[1],
        per="step" if per_step else "trace",
        span=_total("span", (busy, idle)),
        busy=busy,
        idle=idle,
        noise=noise,
        same_work=abs(busy.change_ns) <= noise * min(busy.a_ns, busy.b_ns),
        phases=phases,
        causes=causes,
        modules=_module_changes(a_means, b_means) if a.has_modules and b.has_modules else (),
        operators=align_entries(a_means.operators(), b_means.operators(), operator_key),
        kernels=align_entries(a_means.kernels(), b_means.kernels(), kernel_key) if a.clock == "device" else (),
        waits=align_entries(a_means.waits(), b_means.waits()),
        kinds=kind_changes(a, b),
    )
    return replace(comparison, sentences=sentences(comparison), notes=notes(comparison, a, b))


class _TraceMeans:
    """One trace's times divided by a number of steps and ranks, in whole ns, so that parts still sum to their total."""

    def __init__(self, trace: TraceSummary, divisor: int) -> None:
        self._trace = trace
        self._divisor = divisor
        idle = {cause: sum(entry.ns for entry in trace.idle if entry.cause == cause) for cause in IDLE_CAUSES}
        phase_parts = [(timing.phase, timing.kernel_ns or 0) for timing in trace.phases]
        busy_parts = [*phase_parts, (NO_PHASE, trace.unattributed_ns)]
        idle_parts = list(idle.items())
        means = list(self._divide([ns for _, ns in (*busy_parts, *idle_parts)]))
        self.phases: dict[str, int] = {name: ns for (name, _), ns in zip(busy_parts, means, strict=False)}
        self.causes: dict[str, int] = {
            name: ns for (name, _), ns in zip(idle_parts, means[len(busy_parts) :], strict=True)
        }

    def modules(self, wrapper_depth: int) -> list[TimedEntry]:
        """By path and phase, without the first `wrapper_depth` names of each path."""
        return self._means(
            TimedEntry(
                drop_outermost(module.path, wrapper_depth) or module.path or NO_MODULE,
                module.kernel_ns,
                module.events,
                module.phase,
            )
            for module in self._trace.modules
        )

    def operators(self) -> list[TimedEntry]:
        """By name: kernel time, or self time on the host's clock."""
        on_device = self._trace.clock == "device"
        return self._means(
            TimedEntry(
                operator.name,
                operator.kernel_ns if on_device else operator.host_self_ns,
                operator.calls,
                family=operator.family,
            )
            for operator in self._trace.operators
        )

    def kernels(self) -> list[TimedEntry]:
        """By name. The family is the main family and the convolution part, without the algorithm."""
        return self._means(
            TimedEntry(
                kernel.name,
                kernel.kernel_ns,
                kernel.calls,
                family=f"{kernel.family.partition(':')[0]} {kernel.op or ''}".strip(),
            )
            for kernel in self._trace.kernels
        )

    def waits(self) -> list[TimedEntry]:
        """The host's waits for the device by the waiting operator and call, all phases together."""
        return self._means(
            TimedEntry(
                wait.name if wait.call in ("", wait.name) else f"{wait.name} ({wait.call})", wait.wait_ns, wait.calls
            )
            for wait in self._trace.syncs
        )

    def _means(self, entries: Iterable[TimedEntry]) -> list[TimedEntry]:
        totals = list(entries)
        means = self._divide([entry.ns for entry in totals])
        return [replace(entry, ns=ns) for entry, ns in zip(totals, means, strict=True)]

    def _divide(self, parts: Sequence[int]) -> Iterator[int]:
        """Divide each part by the divisor. Rounding is cumulative: the first n means sum to the floored mean of their sum."""
        running_total = previous_mean = 0
        for part in parts:
            running_total += part
            yield running_total // self._divisor - previous_mean
            previous_mean = running_total // self._divisor


def _module_changes(a: _TraceMeans, b: _TraceMeans) -> tuple[TimeChange, ...]:
    a_paths, b_paths = (
        [entry.name for entry in side.modules(0) if entry.name not in (NO_MODULE, *PSEUDO_PATHS)] for side in (a, b)
    )
    depths = wrapper_depths(a_paths, b_paths)
    return align_entries(a.modules(depths[0]), b.modules(depths[1]))


def _changes(names: Sequence[str], a: Mapping[str, int], b: Mapping[str, int]) -> Iterator[TimeChange]:
    for name in names:
        if a.get(name) or b.get(name):
            yield TimeChange(name=name, a_ns=a.get(name, 0), b_ns=b.get(name, 0))


def _total(name: str, rows: Sequence[TimeChange]) -> TimeChange:
    return TimeChange(name=name, a_ns=sum(row.a_ns for row in rows), b_ns=sum(row.b_ns for row in rows))


def _side(trace: TraceSummary, label: str, ranks: int) -> TraceSide:
    # only steady steps: the first and last step of a trace may lack kernels launched before or after the recording
    times = [step.kernel_ns for step in trace.steps if step.steady and step.kernel_ns > 0]
    spread = (max(times) - min(times)) / median(times) if len(times) >= MIN_STEADY_STEPS else None
    devices = list(dict.fromkeys(name for name in trace.devices if name))
    return TraceSide(
        label=label,
        file=trace.file,
        device=", ".join(devices),
        steps=len(trace.working_steps),
        step_ns=trace.step_ns if trace.clock == "device" else trace.host_step_ns,
        spread=spread,
        ranks=ranks,
        outside_ns=trace.outside_ns,
    )


def _labels(a: str, b: str) -> tuple[str, str]:
    """Distinct names of two trace files: file names without suffixes, or folders if the files differ only in numbers."""
    labels = _file_labels(a, b)
    return labels if max(map(len, labels)) <= MAX_LABEL_CHARS else ("A", "B")


def _file_labels(a: str, b: str) -> tuple[str, str]:
    for name_of in (_stem, _folder_name, lambda path: path):
        a_name, b_name = name_of(a), name_of(b)
        if a_name and b_name and a_name != b_name and _without_numbers(a_name) != _without_numbers(b_name):
            return a_name, b_name
    for name_of in (_folder_name, _stem):
        if name_of(a) and name_of(b) and name_of(a) != name_of(b):
            return name_of(a), name_of(b)
    return "a", "b"


def _folder_name(path: str) -> str:
    return PurePath(path).parent.name


def _stem(path: str) -> str:
    return PurePath(path).name.partition(".")[0] if not PurePath(path).name.startswith("worker") else ""


def _without_numbers(name: str) -> str:
    """`name` without long numbers, which are timestamps or process numbers."""
    return "".join(part for part in name.split("_") if not (part.isdigit() and len(part) > 4))

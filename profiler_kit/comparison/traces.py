"""Compares two traces: what takes longer by phase, idle cause, module, operator and kernel, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from statistics import median
from typing import Final

from profiler_kit.comparison.trace_names import Timed, aligned, dropped, kernel_key, operator_key, same_root
from profiler_kit.comparison.trace_words import notes, sentences
from profiler_kit.errors import NotComparableError
from profiler_kit.records.counts import PSEUDO_PATHS
from profiler_kit.records.trace_comparison import TimeChange, TraceComparison, TraceSide
from profiler_kit.records.traces import IDLE_CAUSES, TRACE_PHASES, TraceSummary
from profiler_kit.statistics.report_noise import LEAST_NOISE

NO_PHASE: Final = "(no phase)"
NO_MODULE: Final = "(no module)"
STEPS: Final = 3  # steady ones: two tell nothing of how far steps lie apart


def compare_traces(a: TraceSummary, b: TraceSummary, *, ranks: int = 1) -> TraceComparison:
    """What differs between two traces, or between two sums of the traces of `ranks` ranks, then as their mean.

    Figures are of the whole traces where both hold equally many marked steps (or one has none), else per step.

    Raises:
        NotComparableError: one has device work and the other has none, or one has no work at all.
    """
    for one in (a, b):
        if not one.span_ns:
            raise NotComparableError(
                "holds no work whose time could be compared", where=one.file, hint="record it around whole steps"
            )
    if a.clock != b.clock:
        host = a if a.clock == "host" else b
        raise NotComparableError(
            f"{PurePath(host.file).name} has no work of a device and the other has, so they share no clock",
            hint="record both on the same kind of device, with ProfilerActivity.CUDA",
        )
    labels = _labels(a.file, b.file)
    sides = (_side(a, labels[0], ranks), _side(b, labels[1], ranks))
    per_step = bool(a.steps) and bool(b.steps) and len(a.steps) != len(b.steps)
    whole = _Parts(a, ranks * (len(a.steps) if per_step else 1)), _Parts(b, ranks * (len(b.steps) if per_step else 1))
    phases = tuple(_named((*TRACE_PHASES, NO_PHASE), whole[0].phases, whole[1].phases))
    causes = tuple(_named(IDLE_CAUSES, whole[0].causes, whole[1].causes))
    busy, idle = _total("busy", phases), _total("idle", causes)
    spreads = [side.spread for side in sides if side.spread is not None]
    noise = max(LEAST_NOISE, *spreads) if len(spreads) == len(sides) else LEAST_NOISE
    compared = TraceComparison(
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
        modules=_modules(*whole) if a.has_modules and b.has_modules else (),
        operators=aligned(whole[0].operators(), whole[1].operators(), operator_key),
        kernels=aligned(whole[0].kernels(), whole[1].kernels(), kernel_key) if a.clock == "device" else (),
        waits=aligned(whole[0].waits(), whole[1].waits()),
    )
    return replace(compared, sentences=sentences(compared), notes=notes(compared, a, b))


class _Parts:
    """One trace's figures, over its steps and ranks where they are means: whole ns, so that parts still sum to the whole."""

    def __init__(self, trace: TraceSummary, over: int) -> None:
        self._trace = trace
        self._over = over
        known = [(timing.phase, timing.kernel_ns) for timing in trace.phases]
        idle = {cause: sum(entry.ns for entry in trace.idle if entry.cause == cause) for cause in IDLE_CAUSES}
        busy, gaps = [*known, (NO_PHASE, trace.unattributed_ns)], list(idle.items())
        shares = list(self._shares([ns for _, ns in (*busy, *gaps)]))
        self.phases: dict[str, int] = {name: ns for (name, _), ns in zip(busy, shares, strict=False)}
        self.causes: dict[str, int] = {name: ns for (name, _), ns in zip(gaps, shares[len(busy) :], strict=True)}

    def modules(self, drop: int) -> list[Timed]:
        """By path and phase, without the first `drop` names of each path."""
        return self._means(
            Timed(dropped(one.path, drop) or one.path or NO_MODULE, one.kernel_ns, one.events, one.phase)
            for one in self._trace.modules
        )

    def operators(self) -> list[Timed]:
        """By name; on the host's clock the operators' own time."""
        on_device = self._trace.clock == "device"
        return self._means(
            Timed(one.name, one.kernel_ns if on_device else one.host_self_ns, one.calls, family=one.family)
            for one in self._trace.operators
        )

    def kernels(self) -> list[Timed]:
        """By name; the family is what is done: a convolution's part, whichever way."""
        return self._means(
            Timed(one.name, one.kernel_ns, one.calls, family=f"{one.family.partition(':')[0]} {one.op or ''}".strip())
            for one in self._trace.kernels
        )

    def waits(self) -> list[Timed]:
        """The host's waits for the device, by what waited, whatever the phase."""
        return self._means(
            Timed(one.name if one.call in ("", one.name) else f"{one.name} ({one.call})", one.wait_ns, one.calls)
            for one in self._trace.syncs
        )

    def _means(self, sums: Iterable[Timed]) -> list[Timed]:
        entries = list(sums)
        shares = self._shares([entry.ns for entry in entries])
        return [replace(entry, ns=ns) for entry, ns in zip(entries, shares, strict=True)]

    def _shares(self, parts: Sequence[int]) -> Iterator[int]:
        """Each part over what the mean is of, rounded so that any first ones sum to their sum's mean, rounded down."""
        total = before = 0
        for part in parts:
            total += part
            yield total // self._over - before
            before = total // self._over


def _modules(a: _Parts, b: _Parts) -> tuple[TimeChange, ...]:
    ours, theirs = (
        [one.name for one in side.modules(0) if one.name not in (NO_MODULE, *PSEUDO_PATHS)] for side in (a, b)
    )
    drop = same_root(ours, theirs)
    return aligned(a.modules(drop[0]), b.modules(drop[1]))


def _named(names: Sequence[str], a: Mapping[str, int], b: Mapping[str, int]) -> Iterator[TimeChange]:
    for name in names:
        if a.get(name) or b.get(name):
            yield TimeChange(name=name, a_ns=a.get(name, 0), b_ns=b.get(name, 0))


def _total(name: str, rows: Sequence[TimeChange]) -> TimeChange:
    return TimeChange(name=name, a_ns=sum(row.a_ns for row in rows), b_ns=sum(row.b_ns for row in rows))


def _side(trace: TraceSummary, label: str, ranks: int) -> TraceSide:
    # a trace's first and last step may lack work that was launched before, or is still to run, when it was cut
    times = [step.kernel_ns for step in trace.steps if step.steady and step.kernel_ns > 0]
    spread = (max(times) - min(times)) / median(times) if len(times) >= STEPS else None
    devices = list(dict.fromkeys(name for name in trace.devices if name))
    return TraceSide(
        label=label,
        file=trace.file,
        device=", ".join(devices),
        steps=len(trace.steps),
        step_ns=trace.step_ns if trace.clock == "device" else trace.host_step_ns,
        spread=spread,
        ranks=ranks,
    )


def _labels(a: str, b: str) -> tuple[str, str]:
    """What to call the two: their files' names without suffixes, their folders' where files are called by number."""
    for name in (_stem, lambda path: PurePath(path).parent.name, lambda path: path):
        one, other = name(a), name(b)
        if one and other and one != other and _words(one) != _words(other):
            return one, other
    for name in (lambda path: PurePath(path).parent.name, _stem):
        if name(a) and name(b) and name(a) != name(b):
            return name(a), name(b)
    return "a", "b"


def _stem(path: str) -> str:
    return PurePath(path).name.partition(".")[0] if not PurePath(path).name.startswith("worker") else ""


def _words(name: str) -> str:
    """A name without its digits, as far as they are a time or a process's number."""
    return "".join(part for part in name.split("_") if not (part.isdigit() and len(part) > 4))

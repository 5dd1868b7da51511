"""What a device with less memory would do: other algorithms, another time, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import Attempt
from profiler_kit.diagnosis.pairs import run_of, without
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import layer_timing
from profiler_kit.diagnosis.words import capital, layer, listing, phase, quoted, sentences, threshold
from profiler_kit.records.families import algorithm, family_words
from profiler_kit.records.report import Evidence, Finding, Report, Severity, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of, saving
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import parse_bytes, percent, text

SETTING: Final = "memory_limit"
# A tenth of the time is what one would notice and buy memory for.
PRICE: Final = 0.10
_PARTS: Final = {"fprop": "forward", "dgrad": "gradient by data", "wgrad": "gradient by weight"}

DOC = f"""
A run under a memory cap (`--memory-limit 4GiB`) stands beside the same configuration without one: step, peak, and the layers in
which cuDNN took another algorithm because the workspace no longer fits. `high` where it fails under the cap, `medium` where the
step is surely slower by at least {threshold(PRICE)}, else `info`. A cap leaves the device as fast as it is: a smaller device
is slower besides.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A capped run, its twin without a cap, what came of it (None: it failed), and what runs otherwise."""

    capped: ConfigRun
    free: ConfigRun
    tried: Trial | None
    changes: tuple[tuple[str, str], ...]

    @property
    def price(self) -> float:
        """The share that the step gets longer by."""
        return -saving(self.tried.before_ns, self.tried.after_ns) if self.tried is not None else 0.0


def check(report: Report) -> Iterator[Finding]:
    """Fires once for all runs under a cap, where their twins were measured."""
    noise = noise_of(report)
    cases = []
    for run in report.runs:
        if run.config.setting(SETTING) is None or run.config.repeat_of is not None:
            continue
        free = run_of(report, without(run.config, SETTING))
        if free is None or free.failure is not None:
            continue
        tried = sweep_trial(free, run, noise)
        if tried is not None or (run.failure is not None and run.failure.kind == "out_of_memory"):
            cases.append(_Case(capped=run, free=free, tried=tried, changes=tuple(_changes(free, run))))
    if cases:
        yield _finding(cases)


def _finding(cases: list[_Case]) -> Finding:
    worst = max(
        cases,
        key=lambda case: (
            case.free.config.enabled is not False,  # a fallback that fails stops nobody
            case.tried is None,
            case.tried is not None and case.tried.verdict == "worse",
            case.price,
        ),
    )
    ordered = [worst, *(case for case in cases if case is not worst)]
    severity: Severity = "high" if worst.free.config.enabled is not False else "low"
    if worst.tried is not None:
        severity = "medium" if worst.tried.verdict == "worse" and worst.price >= PRICE else "info"
    return RULE.finding(
        severity=severity,
        title=_title(worst),
        explanation=sentences(*(_words(case) for case in ordered)),
        advice=_advice(worst),
        evidence=(piece for case in ordered for piece in _evidence(case)),
        paths=(path for path, _ in worst.changes),
        attempt=Attempt(trial=worst.tried),
        weight=worst.price if worst.tried is not None else 1.0,
    )


def _limit(run: ConfigRun) -> str:
    said = run.config.setting(SETTING) or ""
    try:
        return text(parse_bytes(said), "bytes")
    except ValueError:
        return said


def _title(case: _Case) -> str:
    within = f"With at most {_limit(case.capped)} {quoted(case.free)}"
    if case.tried is None:
        return f"{within} runs out of memory"
    before, after = text(case.tried.before_ns.median, "ns"), text(case.tried.after_ns.median, "ns")
    if case.tried.verdict == "worse":
        return f"{within} takes {percent(case.price)} longer: {before} becomes {after}"
    faster = "is faster" if case.tried.verdict == "better" else "takes as long"
    return f"{within} {faster}: {before} and {after} ({percent(case.price)})"


def _words(case: _Case) -> str:
    if case.tried is None:
        peak = case.free.peak_allocated_bytes
        need = f" It peaks at {text(peak, 'bytes')} without a cap." if peak is not None else ""
        return f"{quoted(case.capped)} ran out of memory.{need}"
    was, now = case.tried.before_peak_bytes, case.tried.after_peak_bytes
    peaks = (
        f", the peak {text(was, 'bytes')} becomes {text(now, 'bytes')}" if was is not None and now is not None else ""
    )
    step = f"{text(case.tried.before_ns.median, 'ns')} becomes {text(case.tried.after_ns.median, 'ns')}"
    said = f"In {quoted(case.capped)} a step of {step}{peaks}"
    if not case.changes:
        return f"{said}; no layer is seen to take another algorithm."
    return f"{said}. {capital(listing([change for _, change in case.changes]))}."


def _changes(free: ConfigRun, capped: ConfigRun) -> Iterator[tuple[str, str]]:
    """(path, what changed): each convolution's part whose algorithm is another one, by parts where both have them."""
    if free.convolutions and capped.convolutions:
        before = {(part.path, part.part): part for part in free.convolutions}
        for now in capped.convolutions:
            was = before.get((now.path, now.part))
            if was is not None and was.family != now.family:
                part = _PARTS[now.part]
                yield now.path, _change(now.path, part, was.family, now.family, was.kernel_ns, now.kernel_ns)
        return
    for item in capped.modules:
        timing = layer_timing(free, item.path, item.phase)
        old, new = algorithm(timing.kernels) if timing is not None else None, algorithm(item.kernels)
        if timing is None or old is None or new is None or old.family == new.family:
            continue
        if new.family.startswith("conv"):
            part = phase(item.phase)
            yield item.path, _change(item.path, part, old.family, new.family, timing.kernel_ns, item.kernel_ns)


def _change(path: str, part: str, was: str, now: str, was_ns: int, now_ns: int) -> str:
    times = f"{text(was_ns, 'ns')} becomes {text(now_ns, 'ns')}"
    return f"{part} of {layer(path)} goes from {family_words(was)} to {family_words(now)} ({times})"


def _advice(case: _Case) -> str:
    if case.tried is None:
        return (
            "On a device of that size take a smaller batch, autocast or checkpointing; count with --fits says which do."
        )
    if case.tried.verdict == "worse":
        return "Leave the memory free that the faster algorithms need: a smaller batch may be faster per example."
    return "Nothing to do: the algorithms that fit are as good."


def _evidence(case: _Case) -> Iterator[Evidence]:
    capped, free = case.capped.config.name, case.free.config.name
    if case.tried is None:
        yield Evidence(name="failure", value="out_of_memory", unit="text", where=capped)
    else:
        yield Evidence(name="longer", value=100.0 * case.price, unit="percent", where=capped)
        yield Evidence(name="median step", value=case.tried.after_ns.median, unit="ns", where=capped)
        yield Evidence(name="median step", value=case.tried.before_ns.median, unit="ns", where=free)
    yield from known(capped, ("peak", case.capped.peak_allocated_bytes, "bytes"))
    yield from known(free, ("peak", case.free.peak_allocated_bytes, "bytes"))
    for path, change in case.changes:
        yield Evidence(name="algorithm", value=change, unit="text", where=f"{path}, {capped}")


RULE = Rule("under_a_cap", DOC, check, "memory")

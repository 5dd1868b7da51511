"""Verdicts on what was measured: a difference counts only where it exceeds the noise of intervals and of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.comparison import MetricRow, Side, Verdict, clock_words
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.report_noise import noise_between, side, step_verdict, within
from profiler_kit.units import Unit, percent

# The caching allocator serves the same program from the same blocks; what varies are workspaces that a library picks.
BYTES_NOISE: Final = 0.01

STEP_TIME: Final = "step_ns"
DEVICE_TIME: Final = "device_ns"


@dataclass(frozen=True, slots=True)
class _Measured:
    key: str
    title: str
    unit: Unit
    value: Callable[[ConfigRun], int | None]


_MEASURED: Final = (
    _Measured(STEP_TIME, "Step time, median", "ns", lambda run: run.step_ns.median if run.step_ns else None),
    _Measured(DEVICE_TIME, "Device time, step", "ns", lambda run: run.device_ns),
    _Measured("peak_allocated_bytes", "Peak memory, measured", "bytes", lambda run: run.peak_allocated_bytes),
)


def measured_rows(
    a: Report, b: Report, sides: tuple[Side, Side], shared: Sequence[tuple[ConfigRun, ConfigRun]]
) -> tuple[MetricRow, ...]:
    """The measured metrics of every shared configuration; one row that says so where a side failed."""
    rows: list[MetricRow] = []
    for one, other in shared:
        failed = failure_reason(one, other, sides)
        refused = environment_reason(a, b, one, other)
        for metric in _MEASURED:
            values = metric.value(one), metric.value(other)
            if values == (None, None) and not (failed and metric.key == STEP_TIME):
                continue
            verdict: Verdict = "failed"
            reason = failed
            if not failed:
                verdict, reason = _judge(a, b, one, other, sides, metric, refused)
            rows.append(
                MetricRow(
                    metric=metric.key,
                    title=_title(metric, one, other),
                    unit=metric.unit,
                    config=one.config.name,
                    a=values[0],
                    b=values[1],
                    ratio=values[1] / values[0] if values[0] and values[1] is not None else None,
                    verdict=verdict,
                    reason=reason,
                )
            )
    return tuple(rows)


def _title(metric: _Measured, one: ConfigRun, other: ConfigRun) -> str:
    if metric.key != DEVICE_TIME:
        return metric.title
    timed = one if one.device_ns is not None else other
    return f"{clock_words(timed.clock).capitalize()}, step"


def failure_reason(one: ConfigRun, other: ConfigRun, sides: tuple[Side, Side]) -> str:
    """Which side failed and why; empty where none did."""
    told = [
        f"{side.label} failed ({run.failure.kind}): {run.failure.message}".replace("\nhint: ", "; ")
        for side, run in zip(sides, (one, other), strict=True)
        if run.failure is not None
    ]
    return "; ".join(told)


def environment_reason(a: Report, b: Report, one: ConfigRun, other: ConfigRun) -> str:
    """Why measurements of the two runs don't compare; empty where they do."""
    if a.target.mode != b.target.mode:
        return f"one side trains, the other only infers ({a.target.mode}, {b.target.mode})"
    if a.target.arithmetic != b.target.arithmetic:
        return f"computed in {a.target.arithmetic} and in {b.target.arithmetic}"
    if (one.config.flags, one.config.settings) != (other.config.flags, other.config.settings):
        return f"configuration {one.config.name} had other flags"
    before, after = one.environment, other.environment
    if before is None or after is None:
        return "" if before is after else "one side does not say what it ran on"
    for what, left, right in (
        ("device", before.device_name, after.device_name),
        ("device", before.device.partition(":")[0], after.device.partition(":")[0]),
        ("torch", before.torch, after.torch),
        ("CUDA", before.cuda, after.cuda),
        ("cuDNN", before.cudnn, after.cudnn),
        ("number of threads", before.threads, after.threads),
    ):
        if left != right:
            return f"another {what}: {left or 'none'} and {right or 'none'}"
    return ""


def _judge(
    a: Report,
    b: Report,
    one: ConfigRun,
    other: ConfigRun,
    sides: tuple[Side, Side],
    metric: _Measured,
    refused: str,
) -> tuple[Verdict, str]:
    before, after = metric.value(one), metric.value(other)
    if refused:
        return "not_comparable", refused
    if before is None or after is None:
        return "not_comparable", f"{sides[0 if before is None else 1].label} has no such figure"
    if metric.key == DEVICE_TIME and one.clock != other.clock:
        return "not_comparable", f"added up by other clocks ({one.clock}, {other.clock})"
    if before == after:
        return "same", ""
    if metric.key == STEP_TIME:
        return step_verdict(a, b, one, other)
    if metric.unit == "bytes":
        limit, why = BYTES_NOISE, f"less than {percent(BYTES_NOISE, 2)} apart"
    else:
        both = side(a, one), side(b, other)
        noise = noise_between(a, b, *both)
        limit, why = noise.limit(*both), within(noise, *both)
    if abs(after - before) <= limit * max(before, after):
        return "noise", why
    return ("better" if after < before else "worse"), ""

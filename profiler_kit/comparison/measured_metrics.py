"""Verdicts on measured metrics: a difference counts only if it exceeds the noise of intervals and of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.comparison.ratios import example_count
from profiler_kit.records.comparison import MetricRow, Side, Verdict, clock_name
from profiler_kit.records.metrics import reason_of_inputs
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.statistics.report_noise import compared_sides
from profiler_kit.units import Unit, percent

# The caching allocator serves the same program from the same blocks. Only the workspaces that libraries request vary.
PEAK_NOISE_SHARE: Final = 0.01

STEP_TIME: Final = "step_ns"
DEVICE_TIME: Final = "device_ns"


@dataclass(frozen=True, slots=True)
class _MeasuredMetric:
    key: str
    title: str
    unit: Unit
    value: Callable[[ConfigRun], int | None]


_METRICS: Final = (
    _MeasuredMetric(STEP_TIME, "Step time, median", "ns", lambda run: run.step_ns.median if run.step_ns else None),
    _MeasuredMetric(DEVICE_TIME, "Device time, step", "ns", lambda run: run.device_ns),
    _MeasuredMetric("peak_allocated_bytes", "Peak memory, measured", "bytes", lambda run: run.peak_allocated_bytes),
)


def measured_rows(
    a: Report, b: Report, sides: tuple[Side, Side], shared_runs: Sequence[tuple[ConfigRun, ConfigRun]]
) -> tuple[MetricRow, ...]:
    """The measured metrics of every shared configuration; a single row ``failed`` if a side failed."""
    rows: list[MetricRow] = []
    for a_run, b_run in shared_runs:
        failure = failure_reason(a_run, b_run, sides)
        mismatch = run_reason(a, b, a_run, b_run, sides)
        noise, *compared = compared_sides(a.runs, b.runs, a_run, b_run)
        difference = noise.difference(*compared)
        steps = [noise.compared_step(run) for run in compared]
        for metric in _METRICS:
            values = metric.value(a_run), metric.value(b_run)
            if metric.key == STEP_TIME:
                values = steps[0].median if steps[0] else None, steps[1].median if steps[1] else None
            if values == (None, None) and not (failure and metric.key == STEP_TIME):
                continue
            verdict: Verdict = "failed"
            reason = failure
            if not failure:
                verdict, reason = _judge((a_run, b_run), values, difference, sides, metric, mismatch)
            rows.append(
                MetricRow(
                    metric=metric.key,
                    title=_title(metric, a_run, b_run),
                    unit=metric.unit,
                    config=a_run.config.name,
                    a=values[0],
                    b=values[1],
                    ratio=values[1] / values[0] if values[0] and values[1] is not None else None,
                    verdict=verdict,
                    reason=reason,
                )
            )
    return tuple(rows)


def _title(metric: _MeasuredMetric, a_run: ConfigRun, b_run: ConfigRun) -> str:
    if metric.key != DEVICE_TIME:
        return metric.title
    timed_run = a_run if a_run.device_ns is not None else b_run
    return f"{clock_name(timed_run.clock).capitalize()}, step"


def failure_reason(a_run: ConfigRun, b_run: ConfigRun, sides: tuple[Side, Side]) -> str:
    """Which side failed and why; empty if none did."""
    failures = [
        f"{side.label} failed ({run.failure.kind}): {run.failure.line}"
        for side, run in zip(sides, (a_run, b_run), strict=True)
        if run.failure is not None
    ]
    return "; ".join(failures)


def run_reason(a: Report, b: Report, a_run: ConfigRun, b_run: ConfigRun, sides: tuple[Side, Side]) -> str:
    """Why the measurements of two runs are not comparable as they are; empty if they are."""
    return environment_reason(a, b, a_run, b_run) or _input_reason(a, b, a_run, b_run, sides)


def _input_reason(a: Report, b: Report, a_run: ConfigRun, b_run: ConfigRun, sides: tuple[Side, Side]) -> str:
    """How the inputs of two runs differ; empty where both steps have the same examples, whatever the targets' batch sizes."""
    reason = reason_of_inputs(a, b)
    examples = example_count(a_run, sides[0]), example_count(b_run, sides[1])
    return "" if has_same_examples(a, b) and examples[0] == examples[1] else reason


def has_same_examples(a: Report, b: Report) -> bool:
    """Whether the inputs of two targets differ at most in their batch sizes."""
    shapes = [[(tensor.shape[1:], len(tensor.shape), tensor.dtype) for tensor in each.target.inputs] for each in (a, b)]
    return shapes[0] == shapes[1]


def environment_reason(a: Report, b: Report, a_run: ConfigRun, b_run: ConfigRun) -> str:
    """Why measurements of the two runs are not comparable; empty if they are."""
    if a.target.mode != b.target.mode:
        return f"different modes: {a.target.mode} and {b.target.mode}"
    if a.target.arithmetic != b.target.arithmetic:
        return f"different arithmetic: {a.target.arithmetic} and {b.target.arithmetic}"
    if (a_run.config.flags, a_run.config.settings) != (b_run.config.flags, b_run.config.settings):
        return f"configuration {a_run.config.name} has different flags"
    before, after = a_run.environment, b_run.environment
    if before is None or after is None:
        return "" if before is after else "one report does not record its environment"
    for label, a_value, b_value in (
        ("device", before.device_name, after.device_name),
        ("device", before.device.partition(":")[0], after.device.partition(":")[0]),
        ("torch", before.torch, after.torch),
        ("CUDA", before.cuda, after.cuda),
        ("cuDNN", before.cudnn, after.cudnn),
        ("number of threads", before.threads, after.threads),
    ):
        if a_value != b_value:
            return f"different {label}: {a_value or 'none'} and {b_value or 'none'}"
    return ""


def _judge(
    runs: tuple[ConfigRun, ConfigRun],
    values: tuple[int | None, int | None],
    step: Difference | None,
    sides: tuple[Side, Side],
    metric: _MeasuredMetric,
    mismatch: str,
) -> tuple[Verdict, str]:
    (a_run, b_run), (before, after) = runs, values
    if mismatch:
        return "not_comparable", mismatch
    if before is None or after is None:
        return "not_comparable", f"{sides[0 if before is None else 1].label} has no value"
    if metric.key == DEVICE_TIME and a_run.clock != b_run.clock:
        return "not_comparable", f"different clocks: {a_run.clock} and {b_run.clock}"
    if before == after:
        return "same", ""
    if metric.unit == "bytes":
        if abs(after - before) <= PEAK_NOISE_SHARE * max(before, after):
            return "noise", f"less than {percent(PEAK_NOISE_SHARE, 2)} apart"
        return ("better" if after < before else "worse"), ""
    if step is None or step.limit is None:
        return "unknown", step.reason if step is not None else "a side has no step time"
    if metric.key == STEP_TIME:
        return ("noise" if step.outcome == "same" else step.outcome), step.reason
    # Traces are read of one process only. Device times vary no more than steps do.
    change = max(before, after) / max(1, min(before, after)) - 1.0
    if change <= step.limit:
        return "noise", f"changes below {percent(step.limit, 2)} are noise here"
    return ("better" if after < before else "worse"), ""

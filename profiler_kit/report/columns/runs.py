"""The columns of runs: one row per configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.counts import Phase
from profiler_kit.records.document import Value
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference, Interval, Outcome
from profiler_kit.report.columns.column import Column, ColumnTable, share
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, Noise, break_even_steps
from profiler_kit.units import text

NEVER: Final = "never"
MAX_VISIBLE: Final = 10.0  # of the step
UNSURE: Final = "~"  # before a ratio that is not an established difference


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run, its baseline and, for a run with cudnn.benchmark, the same configuration without it. `noise`: of the report."""

    run: ConfigRun
    baseline: ConfigRun | None
    without_benchmark: ConfigRun | None
    noise: Noise


def _has_benchmark(report: Report) -> bool:
    return any(run.config.benchmark for run in report.runs)


def _has_failure(report: Report) -> bool:
    return any(run.failure is not None for run in report.runs)


def _ms(ns: int | None) -> float | None:
    """`ns` in ms: one unit per column makes configurations easy to compare and saves width."""
    return ns / 1e6 if ns is not None else None


def _mib(size_bytes: int | None) -> float | None:
    return size_bytes / 2**20 if size_bytes is not None else None


def _step(row: RunRow) -> Interval | None:
    return row.noise.compared_step(row.run)


def _spread(row: RunRow) -> float | None:
    interval = _step(row)
    return 50.0 * (interval.high - interval.low) / interval.median if interval is not None and interval.median else None


def _smallest_change(row: RunRow) -> float | None:
    """In percent; None for the baseline, and where a tenfold time would not have been reported."""
    difference = _difference(row)
    if (
        row.run is row.baseline
        or difference is None
        or difference.smallest_visible is None
        or difference.smallest_visible > MAX_VISIBLE
    ):
        return None
    return 100.0 * difference.smallest_visible


def _difference(row: RunRow) -> Difference | None:
    return row.noise.difference(row.baseline, row.run) if row.baseline is not None else None


def outcome_of(row: RunRow) -> Outcome | None:
    """The outcome against the baseline; None for the baseline itself and without a step."""
    difference = _difference(row)
    return difference.outcome if difference is not None and row.run is not row.baseline else None


def _ratio(row: RunRow) -> float | None:
    difference = _difference(row)
    return difference.ratio if difference is not None else None


def marked_ratio(row: RunRow) -> str | None:
    """The ratio with a mark in front if no difference is established; the baseline is 1x."""
    difference = _difference(row)
    if difference is None:
        return None
    if row.run is row.baseline:
        return text(1.0, "ratio")
    return f"{'' if difference.is_sure else UNSURE}{text(difference.ratio, 'ratio')}"


def break_even(row: RunRow) -> Value:
    """Steps until the algorithm search has paid off against no search; ``never`` if it saves less than 2 %.

    None if no difference is established.
    """
    run, off = row.run, row.without_benchmark
    difference = row.noise.difference(off, run) if off is not None else None
    if run.tuning_ns is None or off is None or difference is None:
        return None
    if not difference.is_sure:
        return None
    if difference.saved < MIN_USEFUL_SAVING:
        return NEVER
    before, after = row.noise.compared_step(off), row.noise.compared_step(run)
    return break_even_steps(run.tuning_ns, before, after) if before is not None and after is not None else None


def phase_shares(run: ConfigRun) -> str | None:
    """Shares of device time in forward, loss, backward and optimizer in whole percent: ``37/0/63/0``; None without a trace."""
    by_phase = {timing.phase: timing.kernel_ns for timing in run.phases}
    total_ns = sum(ns for ns in by_phase.values() if ns)
    if not total_ns:
        return None
    backward = (by_phase.get("backward") or 0) + (by_phase.get("recompute") or 0)
    parts = (by_phase.get("forward") or 0, by_phase.get("loss") or 0, backward, by_phase.get("optimizer") or 0)
    return "/".join(f"{100 * part / total_ns:.0f}" for part in parts)


def _kernel_share(phase: Phase) -> Callable[[RunRow], Value]:
    def of_row(row: RunRow) -> Value:
        by_phase = {timing.phase: timing.kernel_ns for timing in row.run.phases}
        return share(by_phase.get(phase), sum(ns for ns in by_phase.values() if ns))

    return of_row


# fmt: off
# ruff: noqa: E501 - one column, one line
RUN_COLUMNS: tuple[Column[RunRow], ...] = (
    Column("config", "config", "text", lambda r: r.run.config.name, "the cuDNN configuration; each runs in a fresh process", name=True),
    Column("failure", "failed", "text", lambda r: r.run.failure.kind.replace("_", " ") if r.run.failure else None, "kind of failure; the message is below the table", when=_has_failure, rank=12),
    Column("enabled", "enabled", "bool", lambda r: r.run.config.enabled, "cudnn.enabled", place="data"),
    Column("benchmark", "benchmark", "bool", lambda r: r.run.config.benchmark, "cudnn.benchmark", place="data"),
    Column("deterministic", "deterministic", "bool", lambda r: r.run.config.deterministic, "cudnn.deterministic", place="data"),
    Column("allow_tf32", "TF32", "bool", lambda r: r.run.config.allow_tf32, "whether convolutions may use TF32", place="data"),
    Column("repeat_of", "repeat of", "text", lambda r: r.run.config.repeat_of, "the configuration that this run repeats in a fresh process (A/A test)", place="data"),
    Column("step_ms", "step ms", "count", lambda r: _ms(step.median if (step := _step(r)) is not None else None), "median of the timed steps in ms, without the profiler; of processes that took turns, their lower deciles or their trimmed means, averaged over the processes", place="page"),
    Column("step_ns", "step", "ns", lambda r: r.run.step_ns.median if r.run.step_ns else None, "median of the timed steps, without the profiler", place="data"),
    Column("compared_step_ns", "compared step", "ns", lambda r: step.median if (step := _step(r)) is not None else None, "the step that comparisons use: the median of the timed steps, or, of processes that took turns, their lower deciles or their trimmed means, averaged over the processes", place="data"),
    Column("step_low_ns", "low", "ns", lambda r: r.run.step_ns.low if r.run.step_ns else None, "lower bound of the median's 95 % bootstrap interval", rank=8, aside=True),
    Column("step_high_ns", "high", "ns", lambda r: r.run.step_ns.high if r.run.step_ns else None, "upper bound of the median's 95 % bootstrap interval", rank=8, aside=True),
    Column("step_spread", "CI ± %", "percent", _spread, "half the width of the step's 95 % interval, as a percentage of the step: by bootstrap, or, of processes that took turns, from the spread between them", place="page", rank=7),
    Column("steps", "timed steps", "count", lambda r: len(r.run.steps_ns) or None, "number of timed steps", rank=11, aside=True),
    Column("warmup_steps", "warm-up", "count", lambda r: r.run.warmup_steps if r.run.failure is None else None, "number of steps before the timed steps, discarded", rank=12, aside=True),
    Column("traced_steps", "traced steps", "count", lambda r: r.run.traced_steps if r.run.failure is None else None, "number of steps under the profiler, after the timed steps", rank=12, aside=True),
    Column("first_step_ms", "first ms", "count", lambda r: _ms(r.run.first_step_ns), "time of the first step of the process in ms, algorithm search and lazy loading included", place="page", rank=8),
    Column("first_step_ns", "first step", "ns", lambda r: r.run.first_step_ns, "time of the first step of the process, algorithm search and lazy loading included", place="data"),
    Column("ratio", "vs {baseline}", "ratio", _ratio, "step time divided by the baseline's, over all processes of both; the baseline is the first configuration that succeeded; time per example where batch sizes differ", when=lambda report: len(report.runs) > 1, place="data"),
    Column("marked_ratio", "vs {baseline}", "text", marked_ratio, "step time divided by the baseline's, over all processes of both; ~ marks a difference that is not established", when=lambda report: len(report.runs) > 1, place="page"),
    Column("difference", "difference", "text", outcome_of, "better, worse, same (no difference is established) or unknown, compared with the baseline", when=lambda report: len(report.runs) > 1, place="data"),
    Column("smallest_change", "smallest change", "percent", _smallest_change, "the smallest true change against the baseline that 9 of 10 such analyses would report; empty where unknown, or above 1,000 %", when=lambda report: len(report.runs) > 1, rank=10, aside=True),
    Column("tuning_ns", "algorithm search", "ns", lambda r: r.run.tuning_ns, "one-time cost of cudnn.benchmark: first step minus steady step, minus the same difference without benchmark", when=_has_benchmark, rank=9, aside=True),
    Column("break_even_steps", "break even", "count", break_even, "number of steps after which the algorithm search has paid off; never: it saves less than 2 %; a dash if no difference is established", when=_has_benchmark, rank=3),
    Column("peak_mib", "peak MiB", "count", lambda r: _mib(r.run.peak_allocated_bytes), "peak memory allocated by tensors and workspaces in the timed steps, in MiB", place="page", rank=1),
    Column("peak_allocated_bytes", "peak", "bytes", lambda r: r.run.peak_allocated_bytes, "peak memory allocated by tensors and workspaces in the timed steps", place="data"),
    Column("first_step_peak_bytes", "first peak", "bytes", lambda r: r.run.first_step_peak_bytes, "peak allocated memory of the first step", rank=6, aside=True),
    Column("peak_reserved_bytes", "reserved", "bytes", lambda r: r.run.peak_reserved_bytes, "peak memory reserved by the caching allocator in the timed steps", rank=10, aside=True),
    Column("peak_rss_bytes", "process peak", "bytes", lambda r: r.run.peak_rss_bytes, "peak resident memory of the process, Python and libraries included", when=lambda report: all(run.peak_allocated_bytes is None for run in report.runs), rank=7),
    Column("workspace_mib", "workspace MiB", "count", lambda r: _mib(r.run.workspace_bytes), "largest workspace of one op, in MiB", place="page", rank=8),
    Column("workspace_bytes", "workspace", "bytes", lambda r: r.run.workspace_bytes, "largest workspace of one op", place="data"),
    Column("kernel_shares", "fwd/loss/ bwd/opt %", "text", lambda r: phase_shares(r.run), "shares of device time in forward, loss, backward and optimizer, in whole percent", place="page", rank=2),
    Column("forward_percent", "forward %", "percent", _kernel_share("forward"), "share of device time in forward", place="data"),
    Column("loss_percent", "loss %", "percent", _kernel_share("loss"), "share of device time in the loss", place="data"),
    Column("backward_percent", "backward %", "percent", _kernel_share("backward"), "share of device time in backward", place="data"),
    Column("optimizer_percent", "optimizer %", "percent", _kernel_share("optimizer"), "share of device time in the optimizer", place="data"),
    Column("kernel_ns", "device time", "ns", lambda r: r.run.device_ns, "device time per step, attributed or not", place="data"),
    Column("repeatable", "bitwise equal", "bool", lambda r: r.run.repeatable, "whether three passes in one process gave bitwise equal outputs and gradients", rank=5),
    Column("max_relative_error", "fp64 error", "fraction", lambda r: r.run.max_relative_error, "largest output error against float64, relative to the largest output", rank=6),
    Column("trace", "trace", "text", lambda r: r.run.trace, "file of the Chrome trace of the traced steps", place="data"),
)

TABLES = (
    ColumnTable("runs", RUN_COLUMNS, "One row per configuration."),
)
# fmt: on

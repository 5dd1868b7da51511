"""The columns of `tune`: both sides of the final measurement, the accepted changes, and all that was tried."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.samples import Difference, Outcome
from profiler_kit.records.tuning import Attempt, Contribution, TuningSide
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.runs import UNSURE
from profiler_kit.units import text


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRow:
    """One side of the final measurement: ``baseline``, ``chosen`` or ``reduced precision``."""

    name: str
    side: TuningSide


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontRow:
    """A configuration that no other one beats in time, memory and error together. `ratio`: its figure over the baseline's."""

    config: str
    ratio: float
    peak_bytes: int | None
    max_relative_error: float | None


def _ratio(gain: Difference | None) -> float | None:
    return gain.ratio if gain is not None else None


def _outcome(gain: Difference | None) -> Outcome | None:
    return gain.outcome if gain is not None else None


def _marked_ratio(gain: Difference | None) -> str | None:
    if gain is None:
        return None
    mark = "" if gain.outcome in ("better", "worse") else UNSURE
    return f"{mark}{text(gain.ratio, 'ratio')}"


def _smallest_change(gain: Difference | None) -> float | None:
    return 100.0 * gain.smallest_visible if gain is not None and gain.smallest_visible is not None else None


def _saved(gain: Difference | None) -> str | None:
    return gain.saved_text if gain is not None else None


# fmt: off
# ruff: noqa: E501 - one column, one line
SIDE_COLUMNS: tuple[Column[SideRow], ...] = (
    Column("side", "side", "text", lambda r: r.name, "baseline, chosen, or reduced precision"),
    Column("config", "configuration", "text", lambda r: r.side.config.name, "the configuration", name=True),
    Column("step_ns", "step", "ns", lambda r: r.side.step_ns.median if r.side.step_ns else None, "median of the timed steps of all its processes"),
    Column("step_low_ns", "low", "ns", lambda r: r.side.step_ns.low if r.side.step_ns else None, "lower bound of the median's 95 % bootstrap interval", place="data"),
    Column("step_high_ns", "high", "ns", lambda r: r.side.step_ns.high if r.side.step_ns else None, "upper bound of the median's 95 % bootstrap interval", place="data"),
    Column("processes", "processes", "count", lambda r: len(r.side.process_ns), "number of fresh processes of the final measurement", rank=3),
    Column("samples", "examples", "count", lambda r: r.side.samples, "examples per step", rank=4),
    Column("examples_per_s", "examples/s", "count", lambda r: r.side.examples_per_s, "examples per second", rank=2),
    Column("peak_bytes", "peak", "bytes", lambda r: r.side.peak_bytes, "peak memory allocated in the timed steps (reserved, with CUDA graphs)"),
    Column("max_relative_error", "fp64 error", "fraction", lambda r: r.side.max_relative_error, "largest output error against float64, relative to the largest output"),
    Column("gradient_l2_relative_error", "gradient error", "fraction", lambda r: r.side.gradient_l2_relative_error, "norm of the gradients' error against float64, relative to the norm of the gradients", rank=1),
    Column("repeatable", "bitwise equal", "bool", lambda r: r.side.repeatable, "whether three passes in one process gave bitwise equal outputs and gradients", rank=5),
)

CONTRIBUTION_COLUMNS: tuple[Column[Contribution], ...] = (
    Column("change", "change", "text", lambda c: c.change, "the accepted change", name=True),
    Column("saved", "saves", "text", lambda c: _saved(c.gain), "the share of the goal's figure that it saves, with its interval", place="page"),
    Column("marked_ratio", "with / without", "text", lambda c: _marked_ratio(c.gain), "the goal's figure with the change over that without it; ~ marks a difference that is not established", place="page"),
    Column("ratio", "with / without", "ratio", lambda c: _ratio(c.gain), "the goal's figure with the change over that without it", place="data"),
    Column("low", "low", "ratio", lambda c: c.gain.low if c.gain else None, "lower bound of the ratio's 95 % interval", place="data"),
    Column("high", "high", "ratio", lambda c: c.gain.high if c.gain else None, "upper bound of the ratio's 95 % interval", place="data"),
    Column("outcome", "outcome", "text", lambda c: _outcome(c.gain), "better, worse, same (no difference is established) or unknown", rank=1),
    Column("method", "measured", "text", lambda c: c.method, "leave-one-out: the chosen configuration against the same without the change; incremental: when the search accepted it"),
    Column("without", "without it", "text", lambda c: c.without, "the configuration without the change", name=True, rank=3),
    Column("without_peak_bytes", "peak without it", "bytes", lambda c: c.without_peak_bytes, "peak memory without the change", rank=2),
)

FRONT_COLUMNS: tuple[Column[FrontRow], ...] = (
    Column("config", "configuration", "text", lambda r: r.config, "the configuration", name=True),
    Column("ratio", "vs baseline", "ratio", lambda r: r.ratio, "the goal's figure over that of the baseline, in the final measurement or else in the search"),
    Column("peak_bytes", "peak", "bytes", lambda r: r.peak_bytes, "peak memory"),
    Column("max_relative_error", "fp64 error", "fraction", lambda r: r.max_relative_error, "largest output error against float64, relative to the largest output"),
)

ATTEMPT_COLUMNS: tuple[Column[Attempt], ...] = (
    Column("change", "change", "text", lambda a: a.change, "the change that was tried", name=True),
    Column("round", "round", "count", lambda a: a.round or None, "round of the search, from 1; a dash where it was not run", rank=3),
    Column("base", "on top of", "text", lambda a: a.base or None, "the configuration accepted before", name=True, rank=2),
    Column("config", "configuration", "text", lambda a: a.config or None, "the configuration that was run", place="data"),
    Column("outcome", "outcome", "text", lambda a: a.outcome, "accepted; better (surely, but another change was accepted); same (no difference is established); worse; too slow; inaccurate; failed; not applicable; not tried"),
    Column("marked_ratio", "ratio", "text", lambda a: _marked_ratio(a.gain), "the goal's figure after the change over that before it, in the search; ~ marks a difference that is not established", place="page"),
    Column("ratio", "ratio", "ratio", lambda a: _ratio(a.gain), "the goal's figure after the change over that before it, in the search", place="data"),
    Column("smallest_change", "smallest change", "percent", lambda a: _smallest_change(a.gain), "the smallest true change that 9 of 10 such comparisons would report", rank=1),
    Column("processes", "processes", "count", lambda a: a.gain.after_processes if a.gain else None, "number of fresh processes of the configuration in this round", rank=5),
    Column("expected", "expected", "percent", lambda a: 100.0 * a.expected if a.expected is not None else None, "the share of the step that the change may save, by the replay of the baseline's trace", rank=2),
    Column("peak_bytes", "peak", "bytes", lambda a: a.peak_bytes, "peak memory of the configuration", rank=4),
    Column("max_relative_error", "fp64 error", "fraction", lambda a: a.max_relative_error, "largest output error against float64, relative to the largest output", rank=3),
    Column("reason", "reason", "text", lambda a: a.reason or None, "why it was not accepted", place="data"),
)

TABLES = (
    ColumnTable("tuned_sides", SIDE_COLUMNS, "The baseline and the chosen configuration in the final measurement (`tune`)."),
    ColumnTable("tuned_changes", CONTRIBUTION_COLUMNS, "The accepted changes and what each contributes (`tune`)."),
    ColumnTable("tuning_front", FRONT_COLUMNS, "The configurations that no other one beats in time, memory and error together (`tune`)."),
    ColumnTable("tuning_attempts", ATTEMPT_COLUMNS, "One row per change that was tried, in each round of the search (`tune`)."),
)
# fmt: on

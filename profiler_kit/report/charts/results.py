"""The charts of `tune` and `sweep`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from profiler_kit.records.document import Chart
from profiler_kit.records.samples import Difference
from profiler_kit.records.sweeps import SweepRun
from profiler_kit.records.tuning import Tuning, figure_words
from profiler_kit.report.columns.sweeps import SweepRow
from profiler_kit.report.columns.tuning import FrontRow
from profiler_kit.report.origin import short_path


def gain_chart(tuning: Tuning) -> Iterator[Chart]:
    """The gain of the chosen configuration and of each change that was measured; nothing without any."""
    rows = [
        _gain_row("chosen" if answer is not tuning.reduced else "reduced precision", answer.gain, answer.outcome)
        for answer in tuning.answers
        if answer.gain is not None
    ]
    rows += [
        _gain_row(f"{attempt.change} (round {attempt.round})", attempt.gain, attempt.outcome)
        for attempt in tuning.attempts
        if attempt.gain is not None
    ]
    if rows:
        figure = figure_words(tuning.options.goal)
        yield Chart(
            kind="intervals",
            name="gains",
            title=f"{figure.capitalize()} with each change",
            text=f"Each dot is the {figure} with a change over that without it, and the line its 95 % interval: below 1x is "
            "better. The answers were measured again, against the baseline.",
            data={"unit": "ratio", "baseline": "", "rows": rows},
        )


def _gain_row(name: str, gain: Difference, note: str) -> dict[str, Any]:
    return {
        "name": name, "value": gain.ratio, "low": gain.low, "high": gain.high, "note": note, "outcome": gain.outcome,
        "ratio": None,
    }  # fmt: skip


def front_chart(rows: Sequence[FrontRow], figure: str) -> Iterator[Chart]:
    """The figure of each configuration of the front against its error; nothing for one point."""
    points = [
        {"name": row.config, "group": "front", "x": row.max_relative_error, "y": row.ratio}
        for row in rows
        if row.max_relative_error
    ]
    if len(points) > 1:
        yield Chart(
            kind="scatter",
            name="front",
            title=f"{figure.capitalize()} against error",
            text="Each dot is a configuration that no other one beats in time, memory and error together.",
            data={
                "x": {"title": "error against float64", "unit": "fraction"},
                "y": {"title": f"{figure} vs baseline", "unit": "ratio"},
                "points": points,
            },
        )


def sweep_chart(rows: Sequence[SweepRow]) -> Iterator[Chart]:
    """The step time of each run against its FLOPs, or the memory of each model where nothing is timed; nothing for one point."""
    has_batches = len({row.result.task.batch for row in rows}) > 1
    timed = [
        _point(row, row.run.step_ns.median, has_batches)
        for row in rows
        if row.run is not None and row.run.step_ns is not None
    ]
    counted = [_point(row, row.result.predicted_bytes, has_batches) for row in rows]
    is_timed = any(timed)
    points = [point for point in (timed if is_timed else counted) if point is not None]
    if len(points) < 2:
        return
    y = {"title": "step", "unit": "ns"} if is_timed else {"title": "predicted peak memory", "unit": "bytes"}
    yield Chart(
        kind="scatter",
        name="models",
        title=f"{'Time' if is_timed else 'Memory'} against FLOPs",
        text="Each dot is a model. Of two at the same height, the one on the right does more work in the same time."
        if is_timed
        else "Each dot is a model. Of two at the same height, the one on the right does more work in the same memory.",
        data={"x": {"title": "FLOPs of a step", "unit": "flops"}, "y": y, "points": points},
    )


def _point(row: SweepRow, value: int | None, has_batches: bool) -> dict[str, Any] | None:
    if not value or not row.result.flops:
        return None
    batch = f", batch {row.result.task.batch}" if has_batches and row.result.task.batch is not None else ""
    return {
        "name": f"{short_path(row.result.task.model)}{batch}",
        "group": _group(row.run),
        "x": row.result.flops,
        "y": value,
    }


def _group(run: SweepRun | None) -> str:
    return run.config if run is not None else "counted"

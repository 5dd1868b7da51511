"""Charts as matplotlib figures and as images, in the colors and units of the pages. matplotlib is imported on first use."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from profiler_kit.records.document import Chart
from profiler_kit.render._boxes import icicle, timeline
from profiler_kit.render._colors import LESS, MORE, OTHER_COLORS, color_of
from profiler_kit.render._drawing import (
    DOTS_PER_INCH,
    LABEL_POINTS,
    MUTED,
    SMALL_POINTS,
    WIDTH_INCHES,
    canvas,
    fitted,
    legend,
    name_axis,
    style,
    unit_axis,
    value_axis,
)
from profiler_kit.units import signed, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_TREE_ROWS: Final = 24
_DOTS: Final = WIDTH_INCHES * DOTS_PER_INCH


def figure(chart: Chart) -> Figure:
    """`chart` as a figure. Raises: UsageError if matplotlib is not installed."""
    with style():
        return _DRAW[chart.kind](chart)


def image(chart: Chart, format: Literal["png", "svg"] = "png") -> bytes:  # noqa: A002
    """`chart` as an image; the same chart gives the same bytes."""
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[format]
    content = io.BytesIO()
    with style():
        figure(chart).savefig(content, format=format, metadata=metadata)
    return content.getvalue()


def _height(rows: int) -> float:
    return max(2.2, 1.1 + 0.29 * rows)


def _bars(chart: Chart) -> Figure:
    data = chart.data
    rows, unit = data["rows"], data["unit"]
    picture, axes = canvas(chart.title, _height(len(rows)))
    left = [0.0] * len(rows)
    handles, labels = [], []
    for index, part in enumerate(data["parts"]):
        if not any(part["values"]):
            continue
        color = color_of(part["name"], index)
        bars = axes.barh(
            range(len(rows)), part["values"], left=left, height=0.7, color=color,
            edgecolor="white", linewidth=0.3,
        )  # fmt: skip
        handles.append(bars[0])
        labels.append(part["name"])
        left = [start + value for start, value in zip(left, part["values"], strict=True)]
    for row, total in enumerate(left):
        _note(axes, total, row, text(round(total), unit))
    value_axis(axes, axes.xaxis, unit, 0, 1.1 * max(left, default=0))
    name_axis(axes, rows)
    if handles:
        legend(picture, handles, labels)
    return picture


def _note(axes: Axes, x: float, y: float, written: str) -> None:
    """`written` to the right of a point."""
    axes.annotate(
        written, (x, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=LABEL_POINTS, color=MUTED
    )


def _intervals(chart: Chart) -> Figure:
    data = chart.data
    rows, unit = data["rows"], data["unit"]
    picture, axes = canvas(chart.title, _height(len(rows)))
    baseline = next((row for row in rows if row["name"] == data.get("baseline")), None)
    ends = [row.get("high", row["value"]) for row in rows]
    for index, (row, high) in enumerate(zip(rows, ends, strict=True)):
        outcome = row.get("outcome")
        color = LESS if outcome == "better" else MORE if outcome == "worse" else MUTED
        axes.plot([row.get("low", row["value"]), high], [index, index], color=color, linewidth=2.5)
        axes.plot([row["value"]], [index], "o", color=color, markersize=7)
        faster = f" ({row['ratio']})" if row.get("ratio") and row is not baseline else ""
        _note(axes, max(high, row["value"]), index, f" {text(row['value'], unit)}{faster}")
    value_axis(axes, axes.xaxis, unit, 0, 1.25 * max(ends, default=0))
    name_axis(axes, [row["name"] for row in rows])
    return picture


def _waterfall(chart: Chart) -> Figure:
    data = chart.data
    rows, unit = data["rows"], data["unit"]
    picture, axes = canvas(chart.title, _height(len(rows)))
    changes = [end for row in rows if not row["total"] for end in (row["start"], row["end"])]
    high = max((max(row["start"], row["end"]) for row in rows), default=0)
    least = min(changes, default=0)
    # Where the changes are small, the axis begins near them: the first and the last bar are cut.
    low = max(0.0, least - 0.3 * (high - least)) if least > 0.5 * high else min(0.0, least)
    for index, row in enumerate(rows):
        start, end = max(low, row["start"]), max(low, row["end"])
        color = MUTED if row["total"] else MORE if end > start else LESS
        axes.barh(index, abs(end - start), left=min(start, end), height=0.7, color=color)
        change = row["end"] - row["start"]
        _note(axes, max(start, end), index, text(change, unit) if row["total"] else signed(change, unit))
    value_axis(axes, axes.xaxis, unit, low, high + 0.12 * (high - low))
    name_axis(axes, [row["name"] for row in rows])
    return picture


def _lines(chart: Chart) -> Figure:
    data = chart.data
    unit, points = data["unit"], data["points"]
    picture, axes = canvas(chart.title, 4.0)
    steps = range(1, len(points) + 1)
    handles = []
    for index, band in enumerate(data.get("bands", ())):
        axes.axvspan(
            band["start"] + 1, band["end"] + 1, color=color_of(band["name"], index), alpha=0.12, linewidth=0,
        )  # fmt: skip
    below = [0] * len(points)
    for index, line in enumerate(data["lines"]):
        color, top = color_of(line["name"], index), [sum(pair) for pair in zip(below, line["values"], strict=True)]
        handles += axes.plot(steps, top, color=color, linewidth=1.2, drawstyle="steps-post")
        alpha = 0.2 if len(data["lines"]) == 1 else 0.75
        axes.fill_between(steps, below, top, step="post", color=color, alpha=alpha, linewidth=0)
        below = top
    highest = max(below, default=0)
    peak = below.index(highest)
    axes.annotate(
        fitted(f"{text(highest, unit)} at {points[peak]}", 0.6 * _DOTS),
        (steps[peak], highest), xytext=(0, 4), textcoords="offset points",
        ha="left" if peak < len(points) / 2 else "right", fontsize=LABEL_POINTS,
    )  # fmt: skip
    value_axis(axes, axes.yaxis, unit, 0, 1.12 * highest)
    value_axis(axes, axes.xaxis, "count", 1, len(points))
    axes.set_xlabel("operator")
    if len(handles) > 1:
        legend(picture, handles, [line["name"] for line in data["lines"]])
    return picture


def _roofline(chart: Chart) -> Figure:
    points, roofs = chart.data["points"], chart.data["roofs"]
    picture, axes = canvas(chart.title, 4.6)
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte")
    intensities, rates = [point["intensity"] for point in points], [point["rate"] for point in points]
    ridges = [peak["rate"] / roof["bandwidth"] for roof in roofs for peak in roof["peaks"]]
    low, high = _power(min(intensities)), 10 * _power(1.5 * max(*intensities, *ridges))
    for index, roof in enumerate(roofs):
        for peak in roof["peaks"]:
            ridge = peak["rate"] / roof["bandwidth"]
            axes.plot(
                [low, ridge, high], [low * roof["bandwidth"], peak["rate"], peak["rate"]],
                color=OTHER_COLORS[5 + index % 3], linewidth=1.3, linestyle="--" if index else "-",
            )  # fmt: skip
        if index == 0:
            close: dict[float, list[str]] = {}  # names of peaks that are too close for a label each
            for peak in roof["peaks"]:
                close.setdefault(round(math.log10(peak["rate"]), 1), []).append(peak["name"])
            for exponent, names in close.items():
                axes.annotate(
                    fitted(", ".join(names), 300), (high, 10**exponent), xytext=(-2, 3), textcoords="offset points", ha="right",
                    fontsize=SMALL_POINTS, color=MUTED,
                )  # fmt: skip
    longest = max(point["ns"] for point in points)
    phases = list(dict.fromkeys(point["phase"] for point in points))
    handles = []
    for index, phase in enumerate(phases):
        part = [point for point in points if point["phase"] == phase]
        # A dot is as large as on a page: 6 dots of the picture, and 22 more for the longest time.
        areas = [((6 + 22 * math.sqrt(point["ns"] / longest)) * 72 / DOTS_PER_INCH) ** 2 for point in part]
        handles.append(
            axes.scatter(
                [point["intensity"] for point in part],
                [point["rate"] for point in part],
                s=areas,
                color=color_of(phase, index),
                alpha=0.75,
                linewidths=0,
            )
        )
    slowest = max(points, key=lambda point: point["ns"])
    axes.annotate(
        fitted(f"{slowest['name']}, {slowest['phase']}", 250), (slowest["intensity"], slowest["rate"]),
        xytext=(0, -16), textcoords="offset points", ha="center", fontsize=SMALL_POINTS,
    )  # fmt: skip
    axes.set_xlim(low, high)
    axes.set_ylim(_power(min(rates)), 3 * max([*rates, *(peak["rate"] for roof in roofs for peak in roof["peaks"])]))
    unit_axis(axes.xaxis, "flops/byte")
    unit_axis(axes.yaxis, "flops/s")
    legend(picture, handles, phases)
    for handle in picture.legends[0].legend_handles:
        handle.set_sizes([40])  # type: ignore[union-attr]
    return picture


def _scatter(chart: Chart) -> Figure:
    data = chart.data
    points = data["points"]
    picture, axes = canvas(chart.title, 4.2)
    axes.set(xscale="log", yscale="log", xlabel=data["x"]["title"], ylabel=data["y"]["title"])
    groups = list(dict.fromkeys(point["group"] for point in points))
    handles = []
    for index, group in enumerate(groups):
        part = [point for point in points if point["group"] == group]
        across, up = ([point[axis] for point in part] for axis in ("x", "y"))
        handles.append(axes.scatter(across, up, s=30, color=color_of(group, index), alpha=0.85, linewidths=0))
    for point in points:
        axes.annotate(
            fitted(point["name"], 150), (point["x"], point["y"]), xytext=(5, 0), textcoords="offset points", va="center",
            fontsize=SMALL_POINTS, color=MUTED,
        )  # fmt: skip
    unit_axis(axes.xaxis, data["x"]["unit"])
    unit_axis(axes.yaxis, data["y"]["unit"])
    axes.margins(x=0.15, y=0.1)
    if len(groups) > 1:
        legend(picture, handles, groups)
    return picture


def _power(value: float) -> float:
    """The power of ten at or below `value`."""
    return float(10.0 ** math.floor(math.log10(value)))


def _tree(chart: Chart) -> Figure:
    """The modules with the largest differences by the first figure, in the order of the tree."""
    data = chart.data
    nodes, (a_label, b_label) = data["nodes"], data["sides"]
    key, title, unit = (data["figures"][0][name] for name in ("key", "title", "unit"))
    changes = [(node[key][1] or 0) - (node[key][0] or 0) for node in nodes]
    largest = sorted(range(len(nodes)), key=lambda index: -abs(changes[index]))[:MAX_TREE_ROWS]
    rows = sorted(index for index in largest if changes[index])
    picture, axes = canvas(f"{chart.title}: {title}, {b_label} minus {a_label}", _height(len(rows)))
    for row, index in enumerate(rows):
        change = changes[index]
        axes.barh(row, change, height=0.7, color=MORE if change > 0 else LESS)
        _note(axes, max(0, change), row, f"{signed(change, unit)} {nodes[index]['status']}")
    most = max((abs(changes[index]) for index in rows), default=1)
    low = min([0, *(changes[index] for index in rows)])
    value_axis(axes, axes.xaxis, unit, low, max([0, *(changes[index] for index in rows)]) + 0.35 * most)
    name_axis(axes, [f"{'  ' * _depth(nodes, index)}{nodes[index]['name']}" for index in rows])
    return picture


def _depth(nodes: Sequence[Mapping[str, Any]], index: int) -> int:
    """The number of modules around node `index`."""
    depth = 0
    while (index := nodes[index]["parent"]) >= 0:
        depth += 1
    return depth


_DRAW: Final = {
    "bars": _bars,
    "intervals": _intervals,
    "icicle": icicle,
    "roofline": _roofline,
    "scatter": _scatter,
    "lines": _lines,
    "waterfall": _waterfall,
    "timeline": timeline,
    "tree": _tree,
}

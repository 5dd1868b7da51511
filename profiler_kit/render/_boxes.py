"""Pictures of thousands of boxes: a module tree and the timeline of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from profiler_kit.records.document import Chart
from profiler_kit.render._colors import COLORS, color_of
from profiler_kit.render._drawing import (
    DOTS_PER_INCH,
    INK,
    SMALL_POINTS,
    UNKNOWN,
    WIDTH_INCHES,
    canvas,
    fitted,
    ink_on,
    legend,
    name_axis,
    value_axis,
)
from profiler_kit.units import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LEVELS: Final = 24  # more levels of a module tree share the height of these
MIN_SHARE: Final = 0.0004  # of the width: narrower modules are not drawn
PALE: Final = "55"  # opacity of work of other steps
BAND: Final = "#eef1f5"  # behind the step
_DOTS: Final = WIDTH_INCHES * DOTS_PER_INCH


def timeline(chart: Chart) -> Figure:
    """The lanes of a step with their boxes."""
    from matplotlib.patches import Patch, Rectangle

    lanes, names, boxes = chart.data["lanes"], chart.data["names"], chart.data["boxes"]
    picture, axes = canvas(chart.title, max(2.2, 1.2 + 0.3 * len(lanes)))
    end = max((box[2] for box in boxes), default=0)
    value_axis(axes, axes.xaxis, "ns", 0, end)
    name_axis(axes, lanes, 200)
    plot_dots = 0.75 * _DOTS  # about the width beside the names of the lanes
    thin = 0.7 * end / plot_dots
    shapes = [(start, lane - 0.4, max(stop - start, thin), 0.8) for lane, start, stop, *_ in boxes]
    families = chart.data["families"]
    colors = [f"{color_of(families[name], name)}{PALE if is_other else ''}" for _, _, _, name, is_other, *_ in boxes]
    for first, last, left, right in chart.data["bands"]:
        axes.add_patch(Rectangle((left, first - 0.5), right - left, last - first + 1, color=BAND, zorder=0))
    labels = [names[name] if (stop - start) * plot_dots > 40 * end else "" for _, start, stop, name, *_ in boxes]
    _draw_boxes(axes, shapes, colors, labels, plot_dots / max(end, 1))
    meanings = [family for family in dict.fromkeys(families) if family in COLORS]
    if meanings:
        legend(picture, [Patch(color=COLORS[family]) for family in meanings], meanings)
    return picture


def icicle(chart: Chart) -> Figure:
    """The module tree, each module as wide as its part of the first size."""
    nodes, size = chart.data["nodes"], chart.data["sizes"][0]
    shapes = _icicle_boxes(nodes, size["key"])
    levels = 1 + max((box[1] for box in shapes.values()), default=0)
    picture, axes = canvas(f"{chart.title} by {size['title']}", max(1.6, 0.28 * min(levels, MAX_LEVELS) + 0.9))
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(levels, 0)
    labels = []
    for index, (_, _, part, _) in shapes.items():
        value = nodes[index][size["key"]]
        written = (
            f"{nodes[index]['name']} {text(value, size['unit'])}" if part > 0.12 and value else nodes[index]["name"]
        )
        labels.append(written if part * _DOTS > 28 else "")
    colors = [_node_color(nodes[index]) for index in shapes]
    _draw_boxes(axes, list(shapes.values()), colors, labels, 0.97 * _DOTS)
    if any(node["share"] is not None for node in nodes):
        from matplotlib.patches import Patch

        shares = (0, 50, 100, None)
        legend(
            picture,
            [Patch(color=_share_color(share)) for share in shares],
            [f"{share} % of the roofline" if share is not None else "unknown" for share in shares],
        )
    return picture


def _icicle_boxes(nodes: Sequence[Mapping[str, Any]], key: str) -> dict[int, tuple[float, float, float, float]]:
    """Left, top, width and height of the drawn nodes, by index. Nodes are in pre-order: a parent is before its children."""
    below = [0.0] * len(nodes)
    for node in nodes:
        if node["parent"] >= 0:
            below[node["parent"]] += node[key] or 0
    roots = sum(node[key] or below[index] for index, node in enumerate(nodes) if node["parent"] < 0)
    boxes: dict[int, tuple[float, float, float, float]] = {}
    ends = [0.0] * len(nodes)  # where the next child of a node begins
    root_end = 0.0
    for index, node in enumerate(nodes):
        parent = node["parent"]
        if parent < 0:
            part = (node[key] or below[index]) / roots if roots else 1.0
            box = (root_end, 0.0, part, 1.0)
            root_end += part
        elif parent in boxes:
            total = max(nodes[parent][key] or 0, below[parent])
            part = boxes[parent][2] * (node[key] or 0) / total if total else 0.0
            box = (ends[parent], boxes[parent][1] + 1, part, 1.0)
            ends[parent] += part
        else:
            continue
        if box[2] > MIN_SHARE:
            boxes[index] = box
            ends[index] = box[0]
    return boxes


def _node_color(node: Mapping[str, Any]) -> str:
    """The color of a module: by its change in a comparison, else by its share of the roofline."""
    change = node.get("change")
    if change is None:
        return _share_color(node["share"])
    if not change:
        return UNKNOWN
    from colorsys import hls_to_rgb

    from matplotlib.colors import to_hex

    hue = 24 if change > 0 else 210
    return to_hex(hls_to_rgb(hue / 360, 0.88 - 0.24 * abs(change), 0.25 + 0.6 * abs(change)))


def _share_color(share: float | None) -> str:
    """From strong orange, far below the roofline, to pale, at it; gray where unknown."""
    if share is None:
        return UNKNOWN
    from colorsys import hls_to_rgb

    from matplotlib.colors import to_hex

    return to_hex(hls_to_rgb(24 / 360, 0.62 + 0.003 * min(100.0, share), 0.85))


def _draw_boxes(
    axes: Axes,
    shapes: Sequence[tuple[float, float, float, float]],
    colors: Sequence[str],
    labels: Sequence[str],
    dots_per_unit: float,
) -> None:
    """Boxes as one collection, which draws thousands of them quickly, and the labels that fit into them."""
    from matplotlib.collections import PolyCollection

    corners = [
        [(left, top), (left + wide, top), (left + wide, top + high), (left, top + high)]
        for left, top, wide, high in shapes
    ]
    axes.add_collection(
        PolyCollection(corners, facecolors=list(colors), edgecolors="white", linewidths=0.4), autolim=False
    )
    for (left, top, wide, high), color, label in zip(shapes, colors, labels, strict=True):
        written = fitted(label, wide * dots_per_unit - 8, SMALL_POINTS) if label else ""
        if written:
            axes.annotate(
                written, (left, top + high / 2), xytext=(3, 0), textcoords="offset points", va="center",
                fontsize=SMALL_POINTS, color=INK if color == UNKNOWN or color.endswith(PALE) else ink_on(color), clip_on=True,
            ).set_in_layout(False)  # fmt: skip

"""Charts as matplotlib figures: every kind is drawn, with its values, any text, and the same bytes each time."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pytest
from sample_reports import hostile, v0_h100
from trace_reports import convnet, nested, traces, two_ranks

from profiler_kit.command_lines import install_command
from profiler_kit.errors import UsageError
from profiler_kit.records.document import Chart, ChartKind, Document
from profiler_kit.render.figures import figure, image
from profiler_kit.report import report_document, traces_document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

pytest.importorskip("matplotlib", reason="charts as images need matplotlib")

HOSTILE = "_$x^$ </script>\x1b[2J\u202e 模型 \U0001f600 % {a} \\frac"


def chart(kind: ChartKind, name: str = "name") -> Chart:
    data: dict[ChartKind, dict[str, Any]] = {
        "bars": {"unit": "ns", "rows": [name, "b"], "parts": [{"name": name, "values": [2_000_000, 1]}]},
        "intervals": {
            "unit": "ns", "baseline": "b",
            "rows": [
                {"name": name, "value": 5e6, "low": 4e6, "high": 6e6, "outcome": "better", "ratio": "0.5x"},
                {"name": "b", "value": 10e6},
            ],
        },
        "icicle": {
            "sizes": [{"key": "flops", "title": name, "unit": "flops"}],
            "nodes": [
                {"name": name, "path": name, "type": name, "parent": -1, "share": 40.0, "flops": 3_000_000},
                {"name": "leaf", "path": "leaf", "type": "T", "parent": 0, "share": None, "flops": 2_000_000},
            ],
        },
        "roofline": {
            "roofs": [{"name": name, "bandwidth": 1e12, "peaks": [{"name": name, "rate": 1e14}]}],
            "points": [{"name": name, "phase": name, "intensity": 10.0, "rate": 2e12, "ns": 5}],
        },
        "scatter": {
            "x": {"title": "FLOPs of a step", "unit": "flops"}, "y": {"title": "step", "unit": "ns"},
            "points": [
                {"name": name, "group": name, "x": 2e9, "y": 5e6}, {"name": "b", "group": "other", "x": 3e11, "y": 7e8},
            ],
        },
        "lines": {
            "unit": "bytes", "points": [name, "b", "c"],
            "lines": [{"name": name, "values": [0, 2**20, 5]}, {"name": "rest", "values": [0, 2**19, 5]}],
        },
        "waterfall": {
            "unit": "ns",
            "rows": [
                {"name": name, "start": 0, "end": 100, "total": True},
                {"name": "change", "start": 100, "end": 70, "total": False},
                {"name": "B", "start": 0, "end": 70, "total": True},
            ],
        },
        "tree": {
            "sides": [name, "b"], "figures": [{"key": "ns", "title": name, "unit": "ns"}],
            "nodes": [
                {"name": name, "path": "", "type": name, "status": "changed", "note": name, "parent": -1, "ns": [5000, 9000]},
                {"name": "leaf", "path": "leaf", "type": "T", "status": "removed", "note": "", "parent": 0, "ns": [3000, None]},
                {"name": "same", "path": "same", "type": "T", "status": "same", "note": "", "parent": 0, "ns": [1, 1]},
            ],
        },
        "timeline": {
            "lanes": [name, "device"], "names": [name, "idle"], "families": [None, "idle: python"],
            "boxes": [[0, 0, 50, 0, 0], [1, 20, 90, 1, 1]], "bands": [[0, 0, 0, 60]],
        },
    }  # fmt: skip
    return Chart(kind=kind, title=name, text="", data=data[kind])


def texts(drawn: Figure) -> list[str]:
    from matplotlib.text import Text

    drawn.draw_without_rendering()  # labels of ticks are set when they are placed
    written = [item.get_text() for item in drawn.findobj(Text) if isinstance(item, Text) and item.get_visible()]
    return [item for item in written if item]


@pytest.mark.parametrize(("name", "suffix"), [("name", "svg"), (HOSTILE, "png")], ids=["plain", "hostile"])
@pytest.mark.parametrize("kind", get_args(ChartKind))
def test_every_kind_is_drawn_with_any_text_and_the_same_bytes(
    kind: ChartKind, name: str, suffix: Literal["svg", "png"]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning
        content = image(chart(kind, name), suffix)
        assert content == image(chart(kind, name), suffix)
    if suffix == "png":
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") == 900
    else:
        assert content.startswith(b"<?xml")
        assert b"<dc:date>" not in content


EXPECTED: dict[ChartKind, set[str]] = {
    "bars": {"2 ms", "1 ns"},
    "intervals": {" 5 ms (0.5x)", " 10 ms"},
    "icicle": {"name by name", "name 3 M", "leaf 2 M", "50 % of the roofline"},
    "roofline": {"name, name", "1 TFLOP/s", "FLOP per byte"},
    "scatter": {"name", "b", "100 G", "100 ms", "FLOPs of a step", "step"},
    "lines": {"1.5 MiB at b", "rest"},
    "waterfall": {"100 ns", "-30 ns", "70 ns"},
    "timeline": {"name", "device", "idle", "20 ns"},
    "tree": {"+4 us changed", "-3 us removed", "name"},
}


@pytest.mark.parametrize("kind", get_args(ChartKind))
def test_a_picture_has_values_in_units(kind: ChartKind) -> None:
    written = set(texts(figure(chart(kind))))
    assert EXPECTED[kind] <= written
    assert "name" in written or kind in ("icicle", "lines")


def test_control_characters_are_escaped_and_missing_glyphs_replaced() -> None:
    assert "_$\\x1b[2J\\u202e \ufffd\ufffd" in texts(figure(chart("bars", "_$\x1b[2J\u202e 模型")))


def test_user_settings_change_nothing() -> None:
    import matplotlib

    expected = image(chart("bars"))
    with matplotlib.rc_context({"font.size": 30, "text.usetex": True, "savefig.dpi": 20}):
        assert image(chart("bars")) == expected
        assert matplotlib.rcParams["font.size"] == 30


def test_boxes_of_a_comparison_are_colored_by_the_change() -> None:
    from matplotlib.collections import PolyCollection

    drawn = chart("icicle")
    nodes = [{**node, "change": change} for node, change in zip(drawn.data["nodes"], (0.5, -1.0), strict=True)]
    boxes = figure(replace(drawn, data={**drawn.data, "nodes": nodes})).axes[0].collections[0]
    assert isinstance(boxes, PolyCollection)
    (red, _, blue, _), (other_red, _, other_blue, _) = np.asarray(boxes.get_facecolor()).tolist()
    assert red > blue, "orange, which grew"
    assert other_red < other_blue


def test_bars_are_stacked_to_their_totals() -> None:
    data = {
        "unit": "count", "rows": ["a", "b"],
        "parts": [{"name": "x", "values": [1, 2]}, {"name": "none", "values": [0, 0]}, {"name": "y", "values": [3, 4]}],
    }  # fmt: skip
    axes = figure(Chart(kind="bars", title="t", text="", data=data)).axes[0]
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 1), (0, 2), (1, 3), (2, 4)]  # type: ignore[attr-defined]


def test_thousands_of_boxes_are_one_collection() -> None:
    count = 4000
    nodes = [{"name": "root", "path": "", "type": "", "parent": -1, "share": None, "time": 2000}]
    nodes += [{"name": f"n{i}", "path": "", "type": "", "parent": 0, "share": 50, "time": 1} for i in range(2000)]
    size = {"key": "time", "title": "time", "unit": "ns"}
    tree = figure(Chart(kind="icicle", title="t", text="", data={"sizes": [size], "nodes": nodes}))
    boxes = [[0, i, i + 1, i % 9, 0] for i in range(count)]
    names = [f"n{i}" for i in range(9)]
    timeline = figure(
        Chart(
            kind="timeline",
            title="t",
            text="",
            data={
                "lanes": ["a"],
                "names": names,
                "families": [None] * len(names),
                "boxes": boxes,
                "bands": [[0, 0, 0, count]],
            },
        )
    )
    for drawn, expected in ((tree, 2001), (timeline, count)):
        (collection,) = drawn.axes[0].collections
        assert len(collection.get_paths()) == expected
        assert len(drawn.axes[0].texts) < 30, "labels only where they fit"


def test_a_deep_tree_needs_no_recursion() -> None:
    nodes = [{"name": f"m{i}", "path": "", "type": "", "parent": i - 1, "share": None, "time": 5} for i in range(1200)]
    data = {"sizes": [{"key": "time", "title": "time", "unit": "ns"}], "nodes": nodes}
    (collection,) = figure(Chart(kind="icicle", title="t", text="", data=data)).axes[0].collections
    assert len(collection.get_paths()) == 1200


def test_children_are_inside_their_parents() -> None:
    nodes = [
        {"name": name, "path": name, "type": "", "parent": parent, "share": None, "time": time}
        for name, parent, time in (("r", -1, 10), ("a", 0, 6), ("a.b", 1, 3), ("c", 0, 4), ("c.d", 3, 4))
    ]
    data = {"sizes": [{"key": "time", "title": "time", "unit": "ns"}], "nodes": nodes}
    (collection,) = figure(Chart(kind="icicle", title="t", text="", data=data)).axes[0].collections
    sides = [(path.vertices[0][0], path.vertices[1][0]) for path in collection.get_paths()]  # type: ignore[index]
    assert sides == [
        (0, 1), (0, 0.6), (0, pytest.approx(0.3)), (0.6, 1), (0.6, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "document",
    [
        lambda: report_document(v0_h100()),
        lambda: report_document(hostile()),
        lambda: traces_document(traces(convnet())),
        lambda: traces_document(traces(nested())),
        lambda: traces_document(two_ranks()),
    ],
)
def test_charts_of_reports_are_drawn(document: Any) -> None:
    content: Document = document()
    charts = [block for section in content.sections for block in section.blocks if isinstance(block, Chart)]
    assert charts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for item in charts:
            figure(item).draw_without_rendering()


def test_matplotlib_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="need matplotlib") as raised:
        image(chart("bars"))
    assert raised.value.hint == install_command("profiler-kit[plots]")

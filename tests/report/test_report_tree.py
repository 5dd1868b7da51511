"""The tree of modules: every level adds up, repeated siblings are one row, and names can be anything."""

from __future__ import annotations

from dataclasses import replace

import examples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_reports import EVIL, SAMPLES, count_only, counted, transformer, v0_cuda

from profiler_kit.records.counts import Cost, Forecast, LayerForecast, ModuleNode
from profiler_kit.records.document import Document, Table
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import LayerBound, Peak, PhaseBound, Roof, Roofline
from profiler_kit.records.samples import Interval
from profiler_kit.render import RenderOptions, renderer_by_name, renderers
from profiler_kit.report import report_document
from profiler_kit.report.charts.reports import module_chart
from profiler_kit.report.rows import layer_rows
from profiler_kit.report.tree import MAX_ROWS, OWN

SUMS = ("params", "macs_forward", "flops", "traffic_bytes", "saved_bytes", "floor_ns", "predicted_ns", "kernel_ns")


def node(path: str, work: int = 0, **others: object) -> ModuleNode:
    cost = Cost(macs=work, flops=2 * work, read_bytes=3 * work, write_bytes=work)
    sample = ModuleNode(path=path, class_name="M", calls=1, params=work, forward=cost, backward=cost, saved_bytes=work)
    return replace(sample, **others)  # type: ignore[arg-type]


def report_of(*nodes: ModuleNode) -> Report:
    return replace(count_only(), static=counted(nodes))


def tree_of(report: Report, **options: object) -> Table:
    document = report_document(report, by="tree", **options)  # type: ignore[arg-type]
    section = next(s for s in document.sections if s.title == "Modules")
    return next(block for block in section.blocks if isinstance(block, Table))


def labels(table: Table) -> list[str]:
    return [str(row[0]) for row in table.rows]


def names(table: Table) -> list[str]:
    return [label.lstrip("│├ ") for label in labels(table)]


def level(label: str) -> int:
    """How deep a row lies: its guides come in pairs of characters."""
    return (len(label) - len(label.lstrip("│├ "))) // 2


def value(table: Table, name: str, key: str) -> object:
    index = [head.key for head in table.heads].index(key)
    return table.rows[names(table).index(name)][index]


def assert_adds_up(table: Table) -> None:
    """Every row with rows below it is their sum; the rows at the top are the total."""
    heads = [head.key for head in table.heads]
    depths = [level(label) for label in labels(table)]
    for i in (i for i, key in enumerate(heads) if key in SUMS):
        cells = [row[i] or 0 for row in table.rows]
        for at, depth in enumerate(depths):
            end = next((j for j in range(at + 1, len(depths)) if depths[j] <= depth), len(depths))
            below = [cells[j] for j in range(at + 1, end) if depths[j] == depth + 1]
            if below:
                assert sum(below) == pytest.approx(cells[at]), (table.rows[at][0], heads[i])  # type: ignore[arg-type]
        top = [cell for cell, depth in zip(cells, depths, strict=True) if depth == 0]
        assert sum(top) == pytest.approx(table.totals[0][i]), heads[i]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"uncountable"}))
@pytest.mark.parametrize(
    "options", [{}, {"depth": 1}, {"depth": 9, "top": None}, {"top": 1, "depth": 9}, {"sort": "params"}]
)
def test_every_level_of_a_sample_adds_up(name: str, options: dict[str, object]) -> None:
    table = tree_of(SAMPLES[name](), **options)
    assert table.rows
    assert_adds_up(table)


@st.composite
def forests(draw: st.DrawFn) -> tuple[ModuleNode, ...]:
    """Modules in pre-order, with names that repeat, count up, or are nasty."""
    nodes = [node("", draw(st.integers(0, 3)))]
    name = st.sampled_from(["0", "1", "2", "3", "a1", "a2", "b", "(loss)x", "a b", "c│", "×9"])  # noqa: RUF001

    def grow(path: str, depth: int) -> None:
        if depth == 0:
            return
        for child in draw(st.lists(name, max_size=4, unique=True).map(sorted)):
            below = f"{path}.{child}" if path else child
            nodes.append(node(below, draw(st.integers(0, 2))))
            grow(below, depth - 1)

    grow("", 3)
    return tuple(nodes)


@settings(max_examples=examples.count(60))
@given(
    nodes=forests(),
    depth=st.none() | st.integers(0, 5),
    top=st.none() | st.integers(1, 4),
    sort=st.sampled_from([None, "model", "flops", "layer"]),
)
def test_any_tree_adds_up_however_it_is_shown(
    nodes: tuple[ModuleNode, ...], depth: int | None, top: int | None, sort: str | None
) -> None:
    report = report_of(*(n if n.path else replace(n, params=n.params + 1) for n in nodes))
    assert_adds_up(tree_of(report, depth=depth, top=top, sort=sort))


def test_repeated_siblings_are_one_row_that_holds_them_all() -> None:
    report = transformer()
    assert report.static is not None
    table = tree_of(report, depth=9)
    assert names(table) == [
        "(root)",
        "blocks.0-11 ×12",  # noqa: RUF001
        "mlp",
        "up",
        "down",
        "attn_qkv",
        "attn_out",
    ]
    item = next(n for n in report.static.modules if n.path == "blocks.3.mlp.up")
    assert value(table, "up", "params") == 12 * item.params
    assert value(table, "blocks.0-11 ×12", "macs_forward") == report.static.forward.macs  # noqa: RUF001


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (node("net.2", 5), "the numbers leave one out"),
        (node("net.b", 5), "the name has no number"),
        (node("net.1", 6), "it does other work"),
        (node("net.1", 5, class_name="N"), "it is of another class"),
        (node("net.1", 5, config="k3"), "it was built otherwise"),
        (node("net.1", 5, calls=2), "it is called twice"),
        (node("net.01", 5), "the name is no plain number"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_siblings_that_differ_keep_their_rows(second: ModuleNode, why: str) -> None:
    table = tree_of(report_of(node(""), node("net", 1), node("net.0", 5), second))
    assert names(table) == ["(root)", "net", OWN, "0", second.path.removeprefix("net.")]


def test_siblings_fold_with_all_below_them_and_only_if_that_is_the_same() -> None:
    same = [n for i in range(3) for n in (node(f"b{i}"), node(f"b{i}.x", 2), node(f"b{i}.y", 3))]
    assert names(tree_of(report_of(node(""), *same))) == ["(root)", "b0-2 ×3", "x", "y"]  # noqa: RUF001
    other = [*same[:-1], node("b2.y", 4)]
    folded = names(tree_of(report_of(node(""), *other)))
    assert folded == ["(root)", "b0-1 ×2", "x", "y", "b2", "x", "y"]  # noqa: RUF001


def test_backward_work_may_differ_among_folded_siblings() -> None:
    """The first layer of a model computes no gradient of its input: that alone shall not set it apart."""
    first = replace(node("0", 4), backward=Cost(macs=1, flops=2))
    table = tree_of(report_of(node(""), first, node("1", 4)))
    assert names(table) == ["(root)", "0-1 ×2"]  # noqa: RUF001
    assert value(table, "0-1 ×2", "flops") == 8 + 8 + 8 + 2  # noqa: RUF001


def test_a_module_that_only_holds_another_shares_its_row() -> None:
    table = tree_of(report_of(node(""), node("model"), node("model.encoder"), node("model.encoder.fc", 2)))
    assert names(table) == ["(root)", "model.encoder.fc"]
    busy = tree_of(report_of(node(""), node("model", 1), node("model.fc", 2)))
    assert names(busy) == ["(root)", "model", OWN, "fc"]


def test_modules_without_any_figure_have_no_row() -> None:
    table = tree_of(report_of(node(""), node("a", 2), node("identity"), node("b", 3)))
    assert names(table) == ["(root)", "a", "b"]


def test_a_shared_module_stands_once_with_its_other_names() -> None:
    shared = node("enc.embed", 4, aliases=("enc.tied", "head", "x"))
    table = tree_of(report_of(node(""), node("enc", 1), shared))
    assert names(table) == ["(root)", "enc", OWN, "embed (also tied and 2 more)"]


def test_a_name_of_spaces_alone_is_shown_as_text() -> None:
    assert names(tree_of(report_of(node(""), node("\n", 2), node("b", 1)))) == ["(root)", "'\\n'", "b"]


def test_as_many_levels_as_fit_a_screen_unless_asked_otherwise() -> None:
    nodes = [node("")]
    for i in range(6):
        nodes.append(node(f"s{i}", i))  # own work, and another in each: nothing folds
        nodes += [node(f"s{i}.{j}", 10 * i + 2 * j + 1) for j in range(6)]
    report = report_of(*nodes)
    few = tree_of(report)
    assert max(map(level, labels(few))) == 1
    assert "1 of 2 levels" in few.caption
    assert len(tree_of(report, depth=2).rows) > MAX_ROWS
    assert len(tree_of(report, depth=0).rows) == 1


def test_predicted_times_add_up_with_repeated_modules() -> None:
    nodes = [node(""), *(node(f"{i}{part}", 3) for i in range(3) for part in ("", ".a", ".b")), node("head", 7)]
    layers = tuple(
        LayerForecast(path=each.path, phase="forward", kernel_ns=10 + place, high_ns=20 + place)
        for place, each in enumerate(nodes)
    )
    time = Interval(median=sum(layer.kernel_ns for layer in layers), low=1, high=999)
    forecast = Forecast(
        device="a card", source="", is_scaled=False, kernel_ns=time, host_ns=time, step_ns=time, calls=9, modules=layers
    )
    static = counted(nodes)
    report = replace(count_only(), static=replace(static, forecast=forecast))
    table = tree_of(report)
    (chart,) = module_chart(layer_rows(report, None))
    assert "predicted" in [size["key"] for size in chart.data["sizes"]]
    assert chart.data["nodes"][0]["predicted"] == time.median
    assert "0-2 ×3" in names(table)  # noqa: RUF001
    assert_adds_up(table)
    assert value(table, "(root)", "predicted_ns") == time.median


def test_the_heaviest_children_keep_their_rows_in_the_models_order() -> None:
    nodes = [node(""), node("a", 1), node("b", 9), node("c", 2), node("d", 8), node("e", 3)]
    table = tree_of(report_of(*nodes), top=2)
    assert names(table) == ["(root)", "b", "d", "(3 more)"]
    assert value(table, "(3 more)", "params") == 6
    assert names(tree_of(report_of(*nodes), top=4)) == ["(root)", "a", "b", "c", "d", "e"]  # never "(1 more)"
    assert names(tree_of(report_of(*nodes), top=2, sort="flops")) == ["(root)", "b", "d", "(3 more)"]
    assert names(tree_of(report_of(*nodes), sort="flops"))[1:] == ["b", "d", "e", "c", "a"]


@pytest.mark.parametrize(
    ("word", "key"), [("macs", "macs_forward"), ("bytes", "traffic_bytes"), ("memory", "saved_bytes")]
)
def test_columns_can_be_called_what_people_call_them(word: str, key: str) -> None:
    light = node("a", 1, saved_bytes=100)
    report = report_of(node(""), light, node("b", 5))
    assert names(tree_of(report, sort=word)) == names(tree_of(report, sort=key))
    assert names(tree_of(report, sort=word))[1] == ("a" if word == "memory" else "b")


def test_a_very_deep_model_is_shown() -> None:
    path, nodes = "", [node("")]
    for i in range(200):
        path = f"{path}.m" if path else "m"
        nodes.append(node(path, 1 + i % 2))
    table = tree_of(report_of(*nodes), depth=200)
    assert len(table.rows) == 401 - 1
    assert_adds_up(table)


def drawn(document: Document, name: str, width: int = 100) -> str:
    return renderer_by_name(name).render(document, RenderOptions(width=width, detail=True))


@pytest.mark.parametrize("bad", [EVIL, "a|b", "`x`", "=1+1", " ", "\u202e", "├", "日本語" * 30, "x" * 300])
def test_hostile_names_break_no_format(bad: str) -> None:
    nodes = (node(""), node(bad, 3), node(f"{bad}.0", 5), node(f"{bad}.1", 5), node("ok", 2))
    document = report_document(report_of(*nodes), by="tree")
    for renderer in renderers():
        if renderer.name in ("junit", "openmetrics", "codequality"):  # of check only
            continue
        text = renderer.render(document, RenderOptions(width=100, detail=True))
        assert "\x1b" not in text
        if renderer.name != "json":  # whose strings are the names themselves
            assert "\u202e" not in text
    section = next(s for s in document.sections if s.title == "Modules")
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert_adds_up(table)
    assert max(len(line.encode("utf-32-le")) // 4 for line in drawn(document, "terminal").splitlines()) <= 100


def test_the_tree_is_in_every_format_for_people() -> None:
    document = report_document(transformer(), by="tree")
    assert "└ blocks.0-11 ×12" in drawn(document, "terminal")  # noqa: RUF001
    assert "├ blocks.0-11 ×12" in drawn(document, "markdown")  # noqa: RUF001
    assert drawn(document, "csv").splitlines()[0].startswith("path,")


def under_roof(report: Report) -> Report:
    roof = Roof(
        hardware="X", source="measured", citation="", bandwidth_bytes_per_s=1e9,
        peaks=(Peak(math="fp32", flops_per_s=1e12, ridge_flops_per_byte=1000),),
    )  # fmt: skip
    assert report.static is not None
    layers = tuple(
        LayerBound(
            path=n.path, phase="forward", floor_ns=100.0 + i, binds="memory" if i % 2 else "compute", math="fp32"
        )
        for i, n in enumerate(report.static.modules)
        if n.step_cost.flops
    )
    step = PhaseBound(phase="step", compute_ns=1, memory_ns=2, floor_ns=2, binds="memory", layers_ns=3)
    line = Roofline(roof=roof, config=None, arithmetic="fp32", phases=(step,), layers=layers)
    return replace(report, roofline=(line,))


def test_floors_add_up_and_the_larger_part_says_what_binds() -> None:
    report = under_roof(report_of(node("", 1), node("a", 1), node("b"), node("b.x", 1), node("b.y", 2)))
    table = tree_of(report)
    assert_adds_up(table)
    assert value(table, "b", "floor_ns") == 103 + 104
    assert value(table, "b", "bound") == "compute"  # 104 of 207
    assert value(table, "a", "bound") == "memory"
    assert value(table, "(root)", "floor_share_percent") == pytest.approx(100)


def test_a_measured_report_has_a_tree_too() -> None:
    table = tree_of(v0_cuda(), depth=2)
    assert_adds_up(table)
    assert {"kernel_ns", "kernel_share_percent"} <= {head.key for head in table.heads}

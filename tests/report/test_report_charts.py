"""Charts: the figures of both sides as one tree, the cost of searches, stragglers, and timelines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_reports import v0_cuda, v0_h100, v1_h100
from trace_reports import ms, trace, traces

from profiler_kit.comparison.compare import compare
from profiler_kit.pipeline.compare import compare_traces as compare_files
from profiler_kit.pipeline.inspect import inspect
from profiler_kit.records.comparison import LayerChange, LayerFigures, LayerKind
from profiler_kit.records.counts import MemoryLine, MemoryPoint
from profiler_kit.records.document import Chart, ChartData, Document
from profiler_kit.records.ranks import Ranks, RankTime, Straggler
from profiler_kit.records.serde import read_saved
from profiler_kit.records.sweeps import Sweep
from profiler_kit.records.trace_comparison import TimeChange
from profiler_kit.records.traces import PhaseTime
from profiler_kit.render._colors import COLORS
from profiler_kit.report import traces_document
from profiler_kit.report.charts.comparisons import layer_tree, trace_module_tree
from profiler_kit.report.charts.reports import configuration_chart, memory_charts
from profiler_kit.report.charts.results import sweep_chart
from profiler_kit.report.charts.traces import (
    MAX_BARS,
    call_chart,
    rank_chart,
    ranks_chart,
    repair_charts,
    time_chart,
    timeline_chart,
)
from profiler_kit.report.sweeps import sweep_rows
from profiler_kit.report.trace_comparison import trace_comparison_document
from profiler_kit.report.trace_tables import phase_lines

STRANGERS = Path(__file__).parent.parent / "fixtures" / "traces" / "strangers"
DDP = Path(__file__).parent.parent / "fixtures" / "traces" / "ranks_cuda" / "rank0.json.gz"
MEASURED = Path(__file__).parents[2] / "docs" / "measured"
RANKS = Path(__file__).parent.parent / "fixtures" / "traces" / "ranks_cuda_small"


def by_path(chart: Chart) -> dict[str, dict[str, Any]]:
    return {node["path"]: node for node in chart.data["nodes"]}


def change(kind: LayerKind, a_path: str | None, b_path: str | None, a: int = 0, b: int = 0) -> LayerChange:
    return LayerChange(
        kind=kind, a_path=a_path, b_path=b_path, class_name="Linear", change="text",
        a=LayerFigures(flops=a), b=LayerFigures(flops=b), contribution=0.1,
    )  # fmt: skip


def tree_of(*layers: LayerChange) -> Chart:
    comparison = replace(compare(v0_h100(), v1_h100()), layers=layers, config=None)
    chart, _ = layer_tree(comparison)
    return chart


def test_an_aligned_tree_sums_to_the_totals_of_both_sides() -> None:
    comparison = compare(v0_h100(), v1_h100())
    chart, _ = layer_tree(comparison)
    assert [figure["key"] for figure in chart.data["figures"]] == ["device_ns", "flops", "saved_bytes", "params"]
    nodes = chart.data["nodes"]
    for figure in chart.data["figures"]:
        key = figure["key"]
        for side, name in ((0, "a"), (1, "b")):
            roots = sum(node[key][side] or 0 for node in nodes if node["parent"] < 0)
            assert roots == sum(getattr(getattr(layer, name), key) for layer in comparison.layers)
    for i, node in enumerate(nodes):
        assert node["parent"] < i, "parents come first"


def test_an_aligned_tree_tells_added_removed_and_changed_modules_apart() -> None:
    nodes = by_path(
        tree_of(
            change("added", None, "new.0", b=5),
            change("added", None, "new.1", b=7),
            change("removed", "old", None, a=3),
            change("changed", "block.fc", "block.fc", a=10, b=20),
            change("same", "block.norm", "block.norm", a=1, b=1),
        )
    )
    assert {path: (node["status"], node["flops"]) for path, node in nodes.items()} == {
        "(root)": ("changed", [14, 33]),
        "new": ("added", [None, 12]),
        "new.0": ("added", [None, 5]),
        "new.1": ("added", [None, 7]),
        "old": ("removed", [3, None]),
        "block": ("changed", [11, 21]),
        "block.fc": ("changed", [10, 20]),
        "block.norm": ("same", [1, 1]),
    }


def test_modules_of_different_types_at_one_path_are_two_nodes() -> None:
    chart = tree_of(change("added", None, "act", b=5), change("removed", "act", None, a=3))
    nodes = [(node["path"], node["status"], node["flops"]) for node in chart.data["nodes"][1:]]
    assert nodes == [("act", "added", [None, 5]), ("act", "removed", [3, None])]
    assert chart.data["nodes"][0]["flops"] == [3, 5]


def test_equal_sides_have_no_tree() -> None:
    same = replace(change("same", "fc", "fc", a=1, b=1), contribution=0.0)
    assert list(layer_tree(replace(compare(v0_h100(), v1_h100()), layers=(same,)))) == []


def test_a_tree_of_traces_sums_the_phases_of_a_module() -> None:
    from profiler_kit.comparison.traces import compare_traces

    compared = replace(
        compare_traces(trace("a.json"), trace("b.json")),
        modules=(
            TimeChange(name="net.fc", phase="forward", a_ns=10, b_ns=12),
            TimeChange(name="net.fc", phase="backward", a_ns=20, b_ns=0, alike="only a"),
            TimeChange(name="net.new", phase="forward", a_ns=0, b_ns=4, alike="only b"),
        ),
    )
    chart, _ = trace_module_tree(compared)
    nodes = by_path(chart)
    assert nodes["net.fc"]["ns"] == [30, 12]
    assert nodes["net.fc"]["status"] == "changed", "one of its phases is in both"
    assert (nodes["net.new"]["ns"], nodes["net.new"]["status"]) == ([None, 4], "added")
    assert nodes["net"]["ns"] == [30, 16]


def test_configurations_state_the_cost_of_their_search() -> None:
    (chart,) = configuration_chart(v0_cuda())
    notes = {row["name"]: row["note"] for row in chart.data["rows"]}
    assert notes["default"] == ""
    assert notes["benchmark"].startswith("search ")
    assert notes["benchmark"].endswith(" steps")
    assert notes["benchmark+deterministic+no-tf32"].startswith("search "), "no difference is established"
    assert not notes["benchmark+deterministic+no-tf32"].endswith((" steps", "off"))


def test_stragglers_are_marked_also_among_many_ranks() -> None:
    late = MAX_BARS + 30
    rows = tuple(
        RankTime(
            rank=rank, file=f"{rank}.json", steps=1, step_ns=ms(4), compute_ns=ms(2), communication_ns=ms(1), exposed_ns=ms(1),
            wait_ns=ms(1), idle_ns=ms(1),
        )
        for rank in range(MAX_BARS + 40)
    )  # fmt: skip
    straggler = Straggler(
        rank=late, last=9, collectives=10, late_ns=ms(1), cost_ns=ms(1.5), doing="", doing_excess_ns=0
    )
    ranks = Ranks(ranks=rows, common_steps=1, step_ns=ms(4), imbalance=0.0, stragglers=(straggler,))
    (chart,) = rank_chart(ranks)
    assert len(chart.data["rows"]) == MAX_BARS
    (mark,) = chart.data["marks"]
    assert chart.data["rows"][mark["row"]] == f"rank {late}"
    assert mark["text"] == "late: the others wait 1.5 ms"


def test_data_of_a_chart_is_built_once_and_on_first_use() -> None:
    calls: list[int] = []

    def build() -> dict[str, int]:
        calls.append(1)
        return {"a": 1}

    data = ChartData(build)
    assert calls == []
    assert dict(data) == {"a": 1} == data
    assert len(data) == 1
    assert calls == [1]


def timelines_of(document: Document) -> list[str]:
    return [
        block.title
        for section in document.sections
        if section.title == "Timeline"
        for block in section.blocks
        if isinstance(block, Chart) and block.name == "timeline"
    ]


def test_few_traces_have_a_timeline_each(monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = inspect(RANKS, timelines=True)
    assert sorted(inspection.timelines) == [0, 1]
    titles = timelines_of(traces_document(inspection.report, timelines=inspection.timelines))
    assert [title.rpartition(", ")[2] for title in titles] == ["rank0", "rank1"]
    assert not inspect(RANKS / "rank0.json.gz").timelines, "only on request"
    monkeypatch.setattr("profiler_kit.pipeline.trace_reading.MAX_TIMELINES", 1)
    inspection = inspect(RANKS, timelines=True)
    assert inspection.report.ranks is not None
    assert [inspection.traces[i].file for i in inspection.timelines] == [inspection.report.ranks.slowest.file]


def test_of_many_ranks_the_slowest_has_all_lanes_and_all_are_under_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler_kit.report.traces.MAX_CLOSER", 1)
    inspection = inspect(RANKS, timelines=True)
    assert inspection.report.ranks is not None
    document = traces_document(inspection.report, timelines=inspection.timelines)
    (title,) = timelines_of(document)
    assert title.rpartition(", ")[2] == Path(inspection.report.ranks.slowest.file).name.partition(".")[0]
    blocks = [block for section in document.sections for block in section.blocks]
    (ranks,) = [block for block in blocks if isinstance(block, Chart) and block.name == "ranks_timeline"]
    assert len(ranks.data["lanes"]) == 3 * len(inspection.timelines)


def test_the_slowest_rank_is_the_one_that_others_wait_for() -> None:
    ranks = inspect(RANKS).report.ranks
    assert ranks is not None
    computes = replace(ranks, stragglers=()).slowest
    assert computes.compute_ns == max(rank.compute_ns for rank in ranks.ranks)
    other = next(rank for rank in ranks.ranks if rank.rank != computes.rank)
    late = Straggler(rank=other.rank, last=1, collectives=1, late_ns=9, cost_ns=9, doing="", doing_excess_ns=0)
    assert replace(ranks, stragglers=(late,)).slowest == other


def test_the_timeline_of_a_single_trace_has_no_name() -> None:
    inspection = inspect(RANKS / "rank0.json.gz", timelines=True)
    (title,) = timelines_of(traces_document(inspection.report, timelines=inspection.timelines))
    assert title.startswith("Timeline of ")
    assert "rank0" not in title
    assert timelines_of(traces_document(traces(trace()))) == []


def test_the_chart_of_phases_is_the_table_of_phases() -> None:
    forward = PhaseTime(phase="forward", host_ns=None, kernel_ns=ms(12), sum_ns=ms(12), idle_ns=0, wait_ns=0, events=0)
    summary = trace(idle={("python", "forward"): 10.0}, unattributed_ms=3.0, outside_steps=(forward,))
    (chart,) = time_chart(summary)
    lines, total = phase_lines(summary)
    drawn = {part["name"]: part["values"] for part in chart.data["parts"]}
    assert {line.label: [line.kernel_ns, line.host_ns or 0] for line in lines} == {
        name: values for name, values in drawn.items() if not name.startswith("idle: ")
    }
    assert drawn["forward"][0] == ms(30 - 12)
    assert drawn["(outside steps)"][0] == ms(12)
    assert sum(values[0] for values in drawn.values()) == total.kernel_ns + summary.idle_ns == summary.span_ns


def test_a_timeline_tells_the_work_of_other_steps_apart() -> None:
    (timeline,) = inspect(DDP, timelines=True).timelines.values()
    (chart,) = timeline_chart(timeline)
    lanes, (host, device) = chart.data["lanes"], chart.data["bands"]
    assert host[2:] == [0, timeline.host_end_ns - timeline.start_ns]
    assert (host[1] + 1, device[1] + 1) == (device[0], len(lanes))
    assert {lane.partition(":")[0] for lane in lanes[device[0] :]} == {"device"}
    own_work = [box for box in chart.data["boxes"] if lanes[box[0]].startswith("device: stream") and not box[4]]
    assert device[2:] == [min(box[1] for box in own_work), max(box[2] for box in own_work)]
    assert device[3] > host[3], "the device works on it after the host"
    own = [span for span in timeline.spans if span.step == timeline.index]
    flags = [box[4] for box in chart.data["boxes"]]
    assert flags.count(0) == len(own)
    assert 0 < flags.count(1) == len(timeline.spans) - len(own)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_lane_of_a_timeline_has_boxes_and_every_box_a_color(device: str) -> None:
    (timeline,) = inspect(STRANGERS / f"eager.{device}.json.gz", timelines=True).timelines.values()
    (chart,) = timeline_chart(timeline)
    data = chart.data
    assert {box[0] for box in data["boxes"]} == set(range(len(data["lanes"])))
    assert any(lane.startswith("device") for lane in data["lanes"]) == (device == "cuda")
    assert set(data["families"]) <= set(COLORS)
    kinds = {family.partition(": ")[0] for family in data["families"] if ": " in family}
    assert kinds == ({"work"} if device == "cpu" else {"work", "idle"})


def test_a_sweep_is_time_against_flops_or_memory_where_nothing_is_timed() -> None:
    sweep = read_saved(MEASURED / "sweep_timm_cpu.json")
    assert isinstance(sweep, Sweep)
    (chart,) = sweep_chart(sweep_rows(sweep))
    steps = {result.task.model: result.runs[0].step_ns for result in sweep.results}
    assert {point["name"]: point["y"] for point in chart.data["points"]} == {
        name: step.median for name, step in steps.items() if step is not None
    }
    assert {point["x"] for point in chart.data["points"]} == {result.flops for result in sweep.results}
    counted = tuple(replace(result, runs=()) for result in sweep.results)
    (chart,) = sweep_chart(sweep_rows(replace(sweep, results=counted)))
    assert chart.data["y"]["unit"] == "bytes"
    assert {point["y"] for point in chart.data["points"]} == {result.predicted_bytes for result in counted}
    assert list(sweep_chart(sweep_rows(replace(sweep, results=counted[:1])))) == []


def test_models_of_several_batch_sizes_are_named_with_them() -> None:
    sweep = read_saved(MEASURED / "sweep_timm_cpu.json")
    assert isinstance(sweep, Sweep)
    first = sweep.results[0]
    results = tuple(replace(first, task=replace(first.task, batch=batch)) for batch in (1, 8))
    (chart,) = sweep_chart(sweep_rows(replace(sweep, results=results)))
    assert [point["name"].rpartition(" ")[2] for point in chart.data["points"]] == ["1", "8"]


def test_boxes_of_a_comparison_have_the_larger_side_and_the_change() -> None:
    layers = (change("changed", "a", "a", 10, 30), change("added", None, "b", 0, 5), change("removed", "c", None, 8, 0))
    comparison = replace(compare(v0_h100(), v1_h100()), layers=layers, config=None)
    _, chart = layer_tree(comparison)
    nodes = by_path(chart)
    key = chart.data["sizes"][0]["key"]
    assert {path: nodes[path][key] for path in "abc"} == {"a": 30, "b": 5, "c": 8}
    assert {path: nodes[path]["change"] for path in "abc"} == {"a": 20 / 30, "b": 1.0, "c": -1.0}
    for index, node in enumerate(chart.data["nodes"]):
        assert node["parent"] < index


def test_memory_over_a_step_has_its_phases() -> None:
    points = [
        MemoryPoint(at=at, bytes=1) for at in ("forward conv1", "forward", "loss (loss)", "backward", "backward x")
    ]
    (chart,) = memory_charts(points)
    assert chart.data["bands"] == [
        {"name": "forward", "start": 0, "end": 2},
        {"name": "loss", "start": 2, "end": 3},
        {"name": "backward", "start": 3, "end": 5},
    ]


def test_memory_over_a_step_is_divided_by_category_and_by_module() -> None:
    points = [MemoryPoint(at="forward", bytes=10), MemoryPoint(at="backward", bytes=30)]
    categories = [MemoryLine(name="saved_activations", bytes=(4, 30)), MemoryLine(name="inputs", bytes=(6, 0))]
    modules = [MemoryLine(name="", bytes=(5, 20)), MemoryLine(name="a", bytes=(5, 3))]
    by_category, by_module = memory_charts(points, categories, modules)
    for chart in (by_category, by_module):
        assert [sum(values) for values in zip(*(line["values"] for line in chart.data["lines"]), strict=True)] == [
            10,
            30,
        ]
    assert [line["name"] for line in by_category.data["lines"]] == ["saved activations", "inputs"]
    assert [line["values"] for line in by_module.data["lines"]] == [[5, 20], [5, 3], [0, 7]]


def test_the_calls_of_a_step_are_one_tree() -> None:
    inspection = inspect([STRANGERS / "eager.cuda.json.gz"], timelines=True)
    (timeline,) = inspection.timelines.values()
    (chart,) = call_chart(timeline)
    root, *nodes = chart.data["nodes"]
    assert root["time"] == sum(node["time"] for node in nodes if node["parent"] == 0) > 0
    assert len(nodes) == len(timeline.calls)
    assert all(node["path"].endswith(node["name"]) for node in nodes)
    assert list(call_chart(replace(timeline, calls=()))) == []


def test_the_steps_of_compared_traces_begin_at_the_same_time() -> None:
    compared = compare_files(str(DDP), str(RANKS / "rank0.json.gz"), on_progress=lambda _: None, timelines=True)
    document = trace_comparison_document(compared.comparison, timelines=compared.timelines)
    charts = [
        block.data
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Chart) and block.kind == "timeline"
    ]
    longest = max(timeline.end_ns - timeline.start_ns for timeline in compared.timelines)
    assert [data["shared_ns"] for data in charts] == [[0, longest]] * 2
    assert len({tuple(data["lanes"]) for data in charts}) == 2, "each side has its own"
    assert compare_files(str(DDP), str(DDP), on_progress=lambda _: None).timelines == (), "only on request"


def test_the_ranks_are_under_each_other_and_the_starts_of_a_collective_are_linked() -> None:
    inspection = inspect(RANKS, timelines=True)
    timelines = {f"rank {i}": timeline for i, timeline in inspection.timelines.items()}
    (chart,) = ranks_chart(timelines)
    lanes, boxes = chart.data["lanes"], chart.data["boxes"]
    assert lanes == [f"{rank}: {name}" for rank in timelines for name in ("host", "device", "collectives")]
    assert {box[0] for box in boxes} == set(range(len(lanes)))
    begins = [{box[1] for box in boxes if box[0] == lane} for lane in range(len(lanes))]
    assert chart.data["links"]
    for starts in chart.data["links"]:
        assert [lanes[lane].rpartition(": ")[2] for lane, _ in starts] == ["collectives"] * len(timelines)
        assert all(ns in begins[lane] for lane, ns in starts)
    for first, last, start, end in chart.data["bands"]:
        own = [box for box in boxes if first <= box[0] <= last and not box[4]]
        assert start <= min(box[1] for box in own)
        assert max(box[2] for box in own) <= end
    apart = {rank: replace(timeline, clock_ns=None) for rank, timeline in timelines.items()}
    assert list(ranks_chart(apart)) == []


def test_before_and_after_differ_by_the_saving_of_the_finding() -> None:
    inspection = inspect(DDP, timelines=True)
    (timeline,) = inspection.timelines.values()
    repair = timeline.repair
    assert repair is not None
    saving = inspection.findings[repair.finding - 1].saving
    assert saving is not None
    assert 1.0 - repair.after_ns / repair.before_ns == pytest.approx(saving.median)
    before, after = repair_charts(timeline)
    assert before.data["shared_ns"] == after.data["shared_ns"] == [0, repair.before_ns]
    ends = {"before": repair.before_ns, "after": repair.after_ns}
    assert before.data["lanes"] == after.data["lanes"]
    for chart in (before, after):
        assert [band[2:] for band in chart.data["bands"]] == [[0, ends[chart.name]]] * 2
        assert max(box[2] for box in chart.data["boxes"]) == ends[chart.name], "the last work ends the steps"
        assert min(box[1] for box in chart.data["boxes"]) == 0
    assert list(repair_charts(replace(timeline, repair=None))) == []


def test_only_the_trace_that_a_finding_is_about_is_repaired() -> None:
    inspection = inspect(RANKS, timelines=True)
    repaired = [line.repair for line in inspection.timelines.values() if line.repair is not None]
    assert len(repaired) == 1
    saving = inspection.findings[repaired[0].finding - 1].saving
    assert saving is not None
    assert 1.0 - repaired[0].after_ns / repaired[0].before_ns == pytest.approx(saving.median)


def test_the_ranks_of_two_jobs_have_no_timelines() -> None:
    compared = compare_files(str(RANKS), str(RANKS), on_progress=lambda _: None, timelines=True)
    assert compared.timelines == ()

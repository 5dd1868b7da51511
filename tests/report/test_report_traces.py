"""Inspected traces as documents: what stands where, that parts sum to the whole, that nothing is hidden."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from trace_reports import CASES, convnet, full_queue, ms, nested, trace, traces, waits_for_data

from profiler_kit.diagnosis import diagnose_traces
from profiler_kit.errors import ReportError, UsageError
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.document import Document, Table
from profiler_kit.records.inspect_options import TraceView
from profiler_kit.records.report import TraceReport
from profiler_kit.records.samples import Interval
from profiler_kit.records.serde import dumps, loads_report, loads_saved
from profiler_kit.records.traces import ShapedOperator, TraceModule
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report import dataframe, trace_sentences, traces_document
from profiler_kit.report.trace_tables import families_by_time, idle_lines, phase_lines
from profiler_kit.report.trace_tree import NO_MODULE, SELF, module_tree

SCREEN = 60  # lines, findings included


def explained(report: TraceReport) -> TraceReport:
    return with_verdict(replace(report, findings=diagnose_traces(report)))


def page(report: TraceReport, *, by: TraceView | None = None, detail: bool = False, name: str = "terminal") -> str:
    return renderer_by_name(name).render(traces_document(explained(report), by=by), RenderOptions(detail=detail))


def tables(document: Document) -> list[Table]:
    return [block for section in document.sections for block in section.blocks if isinstance(block, Table)]


def column(table: Table, key: str) -> list[object]:
    at = [head.key for head in table.heads].index(key)
    return [row[at] for row in table.rows]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", ["terminal", "markdown", "json", "csv"])
@pytest.mark.parametrize("by", [None, *get_args(TraceView)])
def test_every_case_renders_in_every_form(name: str, form: str, by: TraceView | None) -> None:
    written = page(CASES[name], by=by, name=form)
    assert written.endswith("\n")
    assert "None" not in written.replace("\nNone.\n", "") or form == "json"


@pytest.mark.parametrize("name", CASES)
def test_a_summary_fits_a_screen_and_its_width(name: str) -> None:
    lines = page(CASES[name]).splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", CASES)
def test_parts_sum_to_the_whole(name: str) -> None:
    for summary in CASES[name].traces:
        lines, total = phase_lines(summary)
        assert total.kernel_ns == sum(line.kernel_ns for line in lines) == summary.busy_ns
        gaps, idle = idle_lines(summary.idle)
        assert idle.ns == sum(gap.ns for gap in gaps) == summary.idle_ns
        families = families_by_time(summary, 2)
        assert sum(line.kernel_ns for line in families) == sum(kernel.kernel_ns for kernel in summary.kernels)
        tree = module_tree(summary.modules, top=1, depth=None, max_lines=20)
        outermost = [line for line in tree.lines if not line.label.startswith(("├", "│"))]
        assert sum(line.kernel_ns for line in outermost) == sum(module.kernel_ns for module in summary.modules)


def test_findings_come_before_what_they_rest_on() -> None:
    titles = [section.title for section in traces_document(explained(traces(nested()))).sections]
    assert titles[:6] == ["Verdict", "What to do", "Findings", "Trace", "Phases", "Idle time"]


def test_the_clocks_stand_side_by_side_and_the_wrong_one_is_said() -> None:
    written = page(traces(convnet()))
    assert "forward    2.1 ms        -   29.4 ms   36.7  0.0714x" in written
    detail = " ".join(page(traces(convnet()), detail=True).split())
    assert "Backward takes 1.8 ms on the host, 49.7 ms on the device" in detail
    assert "the host waits 76.4 ms" in " ".join(written.split())
    assert "backward (62 %), forward (38 %)" in " ".join(written.split())


def test_the_step_without_the_profiler_is_shown() -> None:
    step = Interval(median=ms(34), low=ms(22), high=ms(43))
    shown = trace_sentences.untraced(trace(untraced_step_ns=step))
    assert shown is not None
    assert re.findall(r"[\d.]+(?= ms)", shown) == ["34", "22", "43"]
    assert shown in page(traces(trace(untraced_step_ns=step))).replace("\n", " ")
    assert trace_sentences.untraced(trace(untraced_reason="no steps")) is None


def test_clocks_that_agree_are_no_matter() -> None:
    agreed = trace(phases={"forward": (30.0, 31.0, 0.0), "backward": (60.0, 55.0, 0.0)})
    assert list(trace_sentences.clocks(agreed)) == []
    assert len(list(trace_sentences.clocks(convnet()))) == 2


def test_the_clocks_of_a_filtered_trace_are_not_compared() -> None:
    assert list(trace_sentences.clocks(replace(convnet(), host_events=10, missing_events=90))) == []


def test_a_full_queue_is_said() -> None:
    written = " ".join(page(traces(full_queue())).split())
    assert "at most 1,022 launches" in written
    assert "full" in written
    assert "90 ms" in written


def test_idle_time_says_what_was_waited_for() -> None:
    written = page(traces(waits_for_data()))
    assert "the device is busy 60.6 % of the time (idle: waiting for data 28.5 %)" in " ".join(written.split())
    assert "waiting for data    284 ms  28.5" in written


def test_what_has_no_owner_is_shown() -> None:
    written = " ".join(page(traces(nested())).split())
    assert "(unattributed) - 1 ms 2.0" in written
    sentence = trace_sentences.attribution_gaps(nested())
    assert sentence is not None
    assert sentence in written
    assert re.findall(r"[\d.]+ ms \([\d.]+ %\)", sentence) == ["1 ms (2.0 %)", "1 ms (2.0 %)", "3.5 ms (7.0 %)"]
    assert NO_MODULE in written


def test_a_trace_without_a_device_speaks_of_operators() -> None:
    written = page(CASES["host only"])
    assert "The trace covers 90 ms of host time; it has no steps and no device work." in written
    assert "operators" in written
    assert "idle before" not in written
    assert "host / device" not in written


def test_modules_nest_and_add_up() -> None:
    tree = module_tree(nested().modules, top=None, depth=None, max_lines=100)
    labels = [line.label for line in tree.lines]
    assert labels == [
        "DDP_0.ResNet_0",
        "├ Sequential_0",
        "│ ├ Block_0",
        "│ │ ├ Conv2d_0",
        f"│ │ ├ {SELF}",
        "│ ├ Block_1.Conv2d_1",
        "├ Linear_0",
        NO_MODULE,
    ]
    times = {line.label: Counter(line.times) for line in tree.lines}
    assert times["│ ├ Block_0"] == times["│ │ ├ Conv2d_0"] + times[f"│ │ ├ {SELF}"]
    assert times["DDP_0.ResNet_0"]["recompute"] == ms(5.0)


def test_communication_is_an_owner_beside_the_modules_and_is_none() -> None:
    alone = TraceModule(path="(communication)", class_name="", phase="communication", kernel_ns=ms(9.0), events=100)
    summary = replace(nested(), modules=(*nested().modules, alone))
    (line,) = (
        line for line in module_tree(summary.modules, top=None, depth=1, max_lines=100).lines if "comm" in line.label
    )
    assert (line.label, line.kernel_ns) == ("(communication)", ms(9.0))
    nameless = replace(nested(), modules=(alone,), has_modules=False)
    titles = [section.title for section in traces_document(traces(nameless)).sections]
    assert "Modules" not in titles


def test_operators_by_shape_stand_with_the_operators() -> None:
    item = ShapedOperator(
        name="aten::conv2d",
        family="conv",
        shapes=((8, 30, 257, 257), (50,)),
        calls=3,
        kernel_ns=ms(70.0),
        forward_ns=ms(20.0),
        backward_ns=ms(50.0),
        recompute_ns=0,
    )
    report = traces(replace(convnet(), shapes=(item,)))
    (section,) = (section for section in traces_document(report).sections if section.title == "Operators by shape")
    assert section.detail
    assert "8x30x257x257, 50" in page(report, by="operator")
    assert "8x30x257x257" not in page(report, by="kernel")
    assert [table.name for table in traces_document(report, by="operator").full][:1] == ["trace_operators"]
    assert loads_saved(dumps(report), "saved.json") == report
    pair = page(traces(replace(convnet(), shapes=(item,)), replace(full_queue(), shapes=(item,))), by="operator")
    assert pair.count("Operators by shape of") == 2


def test_depth_and_top_fold_the_tree() -> None:
    tree = module_tree(nested().modules, top=10, depth=2, max_lines=0)
    assert [line.label for line in tree.lines] == ["DDP_0.ResNet_0", "├ Sequential_0", "├ Linear_0", NO_MODULE]
    assert (tree.levels, tree.depth) == (2, 4)
    many = tuple(
        TraceModule(path=f"net.layer{i}", class_name="", phase="forward", kernel_ns=ms(10 - i), events=1)
        for i in range(6)
    )
    folded = module_tree(many, top=2, depth=None, max_lines=100)
    assert [line.label for line in folded.lines] == ["net", "├ layer0", "├ layer1", "├ (4 more)"]
    assert folded.lines[-1].kernel_ns == ms(7 + 6 + 5 + 8)


def test_a_tree_of_any_depth_is_drawn() -> None:
    deep = TraceModule(path=".".join(["m"] * 5000), class_name="", phase="forward", kernel_ns=5, events=1)
    beside = TraceModule(path=".".join(["m"] * 4000), class_name="", phase="forward", kernel_ns=7, events=1)
    tree = module_tree((deep, beside), top=5, depth=None, max_lines=50)
    assert tree.lines[0].kernel_ns == 12


def test_views_show_one_table_and_csv_holds_it() -> None:
    report = traces(nested(), convnet())
    for by in get_args(TraceView):
        document = traces_document(report, by=by)
        assert len(tables(document)) <= 2
        csv = renderer_by_name("csv").render(document, RenderOptions())
        assert csv.splitlines()[0].split(",")[0] == "file"
    document = traces_document(report, by="module")
    assert {head.key for head in document.full[0].heads} >= {"path", "phase", "kernel_ns"}
    assert sum(int(str(ns)) for ns in column(document.full[0], "kernel_ns")) == sum(
        module.kernel_ns for module in nested().modules
    )


def test_a_view_of_several_traces_says_which_is_which() -> None:
    written = page(traces(nested(), replace(nested(), file="b/other.json")), by="phase")
    assert "Phases of ddp_checkpoint " in written
    assert "Phases of other " in written


def test_traces_of_one_name_are_told_apart() -> None:
    report = traces(replace(convnet(), file="a/trace.json"), replace(convnet(), file="b/trace.json"))
    written = page(report)
    assert "a/trace " in written
    assert "b/trace " in written


def test_a_senseless_number_of_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="top is -1"):
        traces_document(CASES["convnet"], top=-1)
    with pytest.raises(UsageError, match="depth is -2"):
        traces_document(CASES["convnet"], depth=-2)


@pytest.mark.parametrize("name", CASES)
def test_json_is_the_record_and_is_read_again(name: str) -> None:
    report = explained(CASES[name])
    written = page(CASES[name], name="json")
    assert loads_saved(written, "saved.json") == report
    assert dumps(report) == written
    data = json.loads(written)
    assert list(data)[:4] == ["kind", "schema", "tool", "created"]
    for item in data["traces"]:
        assert item["busy_ns"] + item["idle_ns"] == item["span_ns"]
        assert {
            "file",
            "steps",
            "phases",
            "idle",
            "modules",
            "kernels",
            "unlinked_ns",
            "unattributed_ns",
            "notes",
        } <= set(item)
        assert sum(p["kernel_ns"] for p in item["phases"]) + item["unattributed_ns"] == item["busy_ns"]
        assert sum(idle["ns"] for idle in item["idle"]) == item["idle_ns"]


def test_a_report_on_traces_is_none_on_a_target() -> None:
    with pytest.raises(ReportError, match="a trace report, not a report"):
        loads_report(dumps(CASES["convnet"]), "saved.json")


def test_a_trace_is_no_saved_report() -> None:
    with pytest.raises(ReportError, match="a trace, not a report") as raised:
        loads_saved('{"schemaVersion": 1, "traceEvents": []}', "trace.json")
    assert raised.value.hint == "profiler-kit inspect trace.json"


@pytest.mark.parametrize("cause", ["waiting for dinner", None, 3])
def test_an_edited_report_is_refused_with_its_place(cause: object) -> None:
    data = json.loads(dumps(CASES["waits for data"]))
    data["traces"][0]["idle"][1]["cause"] = cause
    with pytest.raises(ReportError, match=r"traces\[0\].idle\[1\].cause: expected 'waiting for data' or "):
        loads_saved(json.dumps(data), "saved.json")
    data["traces"][0]["idle"][1] |= {"cause": "python", "phase": "lunch"}
    with pytest.raises(ReportError, match=r"traces\[0\].idle\[1\].phase: expected 'data' or .*'', found 'lunch'"):
        loads_saved(json.dumps(data), "saved.json")


def test_names_from_a_trace_are_made_harmless() -> None:
    kernel = replace(convnet().kernels[0], name="<script>alert(1)</script> | \x1b[31m *x*")
    hostile = traces(replace(convnet(), kernels=(kernel, *convnet().kernels[1:]), notes=("a\x1b[0m <b>",)))
    markdown = page(hostile, detail=True, name="markdown")
    assert "<script>" not in re.sub(r"`[^`]*`", "", markdown)  # in a code span it is text
    assert "\x1b" not in markdown + page(hostile, detail=True)


def test_tables_are_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    report = traces(nested(), convnet())
    phases = dataframe(report)
    assert list(phases.columns)[:2] == ["file", "phase"]
    assert phases["kernel_ns"].sum() == nested().busy_ns + convnet().busy_ns
    kernels = dataframe(report, "trace_kernels")
    assert isinstance(kernels, pandas.DataFrame)
    assert set(kernels["file"]) == {nested().file, convnet().file}
    with pytest.raises(UsageError, match="'convolutions'"):
        dataframe(report, "convolutions")


def test_files_written_once_are_written_alike(tmp_path: Path) -> None:
    assert page(CASES["three"]) == page(CASES["three"])
    assert page(CASES["three"], name="json") == page(CASES["three"], name="json")

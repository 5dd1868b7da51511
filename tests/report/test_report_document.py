"""The document of a report: what is said, in which order, and that its tables add up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sample_reports import CONVENTION, FOLDER, SAMPLES, transformer, v0_cpu, v0_cuda

from profiler_kit.errors import UsageError
from profiler_kit.records.document import Document, FindingList, Paragraph, Section, Table
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.notes import Note, note_of_line
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import dumps, loads_report
from profiler_kit.report import report_document
from profiler_kit.report.columns.runs import NEVER
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.units import text

MS = 10**6
# Columns that are sums over the rows; the others are ratios, names, or bytes that several rows share.
ADDITIVE = {
    "params",
    "macs_forward",
    "flops_forward",
    "flops_backward",
    "flops_recompute",
    "flops_share_percent",
    "saved_bytes",
    "traffic_bytes",
    "kernel_forward_ns",
    "kernel_backward_ns",
    "kernel_ns",
    "kernel_share_percent",
    "stopwatch_ns",
    "stopwatch_percent",
    "event_ns",
    "event_percent",
    "operator_ns",
    "kernel_percent",
}


def section(document: Document, title: str) -> Section:
    return next(s for s in document.sections if s.title == title)


def table(document: Document, title: str) -> Table:
    return next(block for block in section(document, title).blocks if isinstance(block, Table))


def column(of: Table, key: str) -> list[object]:
    index = [head.key for head in of.heads].index(key)
    return [row[index] for row in of.rows]


def texts(document: Document, title: str) -> list[str]:
    return [block.text for block in section(document, title).blocks if isinstance(block, Paragraph)]


@pytest.mark.parametrize(
    "options", [{}, {"top": 2}, {"top": None}, {"top": 1, "depth": 1}, {"depth": 0}, {"sort": "model"}]
)
def test_every_column_that_adds_adds_up_to_its_total(any_report: Report, options: dict[str, int]) -> None:
    document = report_document(any_report, by="layer", **options)  # type: ignore[arg-type]
    checked = 0
    for block in (block for s in document.sections for block in s.blocks):
        if not isinstance(block, Table) or not block.totals:
            continue
        for i, head in enumerate(block.heads):
            if head.key in ADDITIVE:
                parts = [row[i] for row in block.rows if row[i] is not None]
                assert sum(parts) == pytest.approx(block.totals[0][i]), (block.name, head.key)  # type: ignore[arg-type]
                checked += 1
    assert checked >= 2


def test_tables_are_rectangular_and_hold_no_empty_column(any_report: Report) -> None:
    for block in (block for s in report_document(any_report).sections for block in s.blocks):
        if isinstance(block, Table):
            rows = (*block.rows, *block.totals)
            assert {len(row) for row in rows} == {len(block.heads)}
            for i, head in enumerate(block.heads):
                assert any(row[i] is not None for row in block.rows), (block.name, head.key)


def test_the_verdict_comes_first_then_what_to_do_then_findings_then_the_target(any_report: Report) -> None:
    titles = [s.title for s in report_document(any_report).sections]
    opening = titles[: titles.index("Target") + 1]
    assert [title for title in opening if title not in ("What to do", "Tried, no gain")] == [
        "Verdict",
        "Findings",
        "Target",
    ]
    assert opening.index("Findings") == len(opening) - 2


def test_sections_come_in_their_order(v0_report: Report) -> None:
    titles = [s.title for s in report_document(v0_report).sections if not s.detail]
    assert titles == [
        "Verdict",
        "Findings",
        "Target",
        "Configurations",
        "Phases",
        "Layers",
    ]


def test_without_runs_the_count_is_the_summary(count_only_report: Report) -> None:
    titles = [s.title for s in report_document(count_only_report).sections if not s.detail]
    assert titles == ["Verdict", "Findings", "Target", "Cost of one step", "Modules", "Peak memory"]


def test_columns_set_aside_stand_in_a_second_table(v0_report: Report, count_only_report: Report) -> None:
    document = report_document(v0_report)
    for first, second in (("Layers", "Layer counts"), ("Configurations", "First steps and sample counts")):
        main, more = table(document, first), table(document, second)
        assert section(document, second).detail
        assert [row[0] for row in more.rows] == [row[0] for row in main.rows]
        shared = {head.key for head in main.heads} & {head.key for head in more.heads}
        assert shared == {main.heads[0].key}
    keys = {head.key for head in table(report_document(count_only_report, by="layer"), "Layers").heads}
    assert {"params", "flops_forward", "held_bytes", "saved_bytes"} <= keys


def test_held_bytes_count_each_storage_once_in_the_total(v0_report: Report) -> None:
    assert v0_report.static is not None
    layers = table(report_document(v0_report), "Layers")
    position = [head.key for head in layers.heads].index("held_bytes")
    assert layers.totals[0][position] == v0_report.static.saved_bytes


def test_families_are_words_for_people_and_names_for_programs(v0_report: Report) -> None:
    document = report_document(v0_report)
    assert "implicit GEMM (xmma)" in column(table(document, "Layers"), "algorithm")
    assert "implicit GEMM (xmma)" in column(table(document, "Kernels"), "algorithm")
    full = {t.name: t for t in document.full}
    assert "conv:xmma_igemm" in column(full["layers"], "family")
    assert "conv:xmma_igemm" in column(full["kernels"], "family")


@pytest.mark.parametrize(
    ("written", "expected"),
    [("91900", "cuDNN 9.19.0"), ("8902", "cuDNN 8.9.2"), ("9.19.0", "cuDNN 9.19.0"), ("x", "cuDNN x")],
)
def test_cudnns_number_is_shown_as_its_version(v0_report: Report, written: str, expected: str) -> None:
    run = v0_report.runs[0]
    assert run.environment is not None
    run = replace(run, environment=replace(run.environment, cudnn=written))
    messages = texts(report_document(replace(v0_report, runs=(run,))), "Target")
    assert any(f"{expected}, Python" in text for text in messages)


def test_all_findings_are_there_in_the_reports_order(v0_report: Report) -> None:
    (block,) = section(report_document(v0_report), "Findings").blocks
    assert isinstance(block, FindingList)
    assert block.findings == v0_report.findings


def test_the_header_says_what_was_run_on_what_and_from_how_many_steps(v0_cpu_report: Report) -> None:
    messages = " ".join(texts(report_document(v0_cpu_report), "Target"))
    for part in (
        "Training step",
        "8x3x256x256 float32",
        "cross_entropy",
        "sgd",
        "AMD EPYC 7763",
        "4 threads",
        "torch 2.13.0+cpu",
        "3 timed and 1 traced step",
        "389,702 parameters",
        CONVENTION,
        "inputs from example_inputs",
    ):
        assert part in messages, part


def test_warnings_are_set_apart(v0_cpu_report: Report) -> None:
    guessed = replace(v0_cpu_report, target=replace(v0_cpu_report.target, inputs_from="guess"))
    blocks = section(report_document(guessed), "Verdict").blocks
    warnings = [block.text for block in blocks if isinstance(block, Paragraph) and block.role == "warning"]
    assert any("guess" in text for text in warnings)
    assert any("3 timed steps" in text for text in warnings)
    (ops,) = [
        block.text
        for block in section(report_document(transformer()), "Verdict").blocks
        if isinstance(block, Paragraph) and "without a formula" in block.text
    ]
    assert "24 calls" in ops


def test_the_targets_own_word_on_its_guess_is_the_warning() -> None:
    report = transformer()
    own = "GUESSED inputs 1,3,224,224 from the first layer"
    notes = (note_of_line(own), Note(subject="loss", text="sum"), Note(subject="model", text="GuessingGame()"))
    document = report_document(replace(report, target=replace(report.target, notes=notes)))
    blocks = (*section(document, "Verdict").blocks, *section(document, "Target").blocks)
    messages = [(block.role, block.text) for block in blocks if isinstance(block, Paragraph) and block.role != "text"]
    assert ("warning", own) in messages
    assert ("note", "loss: sum") in messages
    assert ("note", "model: GuessingGame()") in messages


def test_many_steps_are_no_warning(v0_report: Report) -> None:
    blocks = section(report_document(v0_report), "Verdict").blocks
    assert not [block for block in blocks if isinstance(block, Paragraph) and block.role == "warning"]


def test_the_cost_is_also_said_per_sample(v0_report: Report) -> None:
    assert any("202.6 G (8 x 25.33 G) MACs forward" in text for text in texts(report_document(v0_report), "Target"))


def test_configurations_stand_beside_the_first(v0_report: Report) -> None:
    runs = table(report_document(v0_report), "Configurations")
    names = column(runs, "config")
    assert len(names) == 10
    ratio = dict(zip(names, column(runs, "marked_ratio"), strict=True))
    assert ratio["default"] == "1x"
    assert ratio["benchmark"] == "0.572x"  # against both processes of the default
    assert ratio["deterministic"] == "~1.01x", "no difference is established"
    assert ratio["cudnn-off"] is None
    assert NEVER not in column(runs, "break_even_steps"), "not where no difference is established"
    assert dict(zip(names, column(runs, "kernel_shares"), strict=True))["default"] == "37/0/63/0"


def test_a_failure_stands_there_in_one_line_with_its_log_in_detail(v0_report: Report) -> None:
    document = report_document(v0_report)
    runs = table(document, "Configurations")
    failures = dict(zip(column(runs, "config"), column(runs, "failure"), strict=True))
    assert failures["cudnn-off"] == "out of memory"
    (line,) = [text for text in texts(document, "Configurations") if text.startswith("cudnn-off failed")]
    assert "Tried to allocate 1.95 GiB" in line
    assert "\n" not in line
    assert section(document, "Logs of failed runs").detail
    assert any("loss.backward()" in text for text in texts(document, "Logs of failed runs"))


def test_the_repetition_says_how_large_the_noise_is(v0_report: Report) -> None:
    assert any("0.4 %" in text and "~" in text for text in texts(report_document(v0_report), "Configurations"))


def test_three_clocks_on_a_device_two_on_a_cpu(v0_report: Report, v0_cpu_report: Report) -> None:
    cuda = table(report_document(v0_report), "Phases")
    assert [head.key for head in cuda.heads if head.key.endswith("_ns")] == ["stopwatch_ns", "event_ns", "kernel_ns"]
    cpu = table(report_document(v0_cpu_report), "Phases")
    assert [head.key for head in cpu.heads if head.key.endswith("_ns")] == ["stopwatch_ns", "operator_ns"]
    assert any("time.time()" in text and ".item()" in text for text in texts(report_document(v0_report), "Phases"))
    assert column(cuda, "phase") == ["forward", "loss", "backward", "optimizer"]


def test_the_phases_and_layers_of_another_run_can_be_shown(v0_report: Report) -> None:
    document = report_document(v0_report, run="no-tf32")
    assert sum(column(table(document, "Phases"), "stopwatch_ns")) == pytest.approx(49_540_000)  # type: ignore[arg-type]
    assert table(document, "Layers").caption.startswith("no-tf32")


def test_layers_are_sorted_by_time_or_else_by_flops(v0_report: Report, count_only_report: Report) -> None:
    times = column(table(report_document(v0_report), "Layers"), "kernel_ns")
    assert times[:-1] == sorted(times[:-1], reverse=True)  # type: ignore[type-var]  # the last has no owner
    flops = column(table(report_document(count_only_report, by="layer"), "Layers"), "flops_share_percent")
    assert flops == sorted(flops, reverse=True)  # type: ignore[type-var]


def test_sorting_takes_any_column_or_the_models_order() -> None:
    by_params = table(report_document(v0_cpu(), sort="params"), "Layers")
    assert column(by_params, "layer")[:2] == ["conv2", "conv3"]
    assert column(table(report_document(v0_cpu(), sort="layer"), "Layers"), "layer")[0] == "(loss)"
    in_order = table(report_document(v0_cpu(), sort="model"), "Layers")
    assert column(in_order, "layer")[:3] == ["(root)", "conv1", "conv2"]
    with pytest.raises(UsageError, match="'color'") as error:
        report_document(v0_cpu(), sort="color")
    assert "kernel_ns" in (error.value.hint or "")


def test_layers_beyond_the_top_are_one_row() -> None:
    layers = table(report_document(transformer(), by="layer", top=5), "Layers")
    assert len(layers.rows) == 6
    assert layers.rows[-1][0] == "(43 more)"
    assert len(table(report_document(transformer(), by="layer", top=47), "Layers").rows) == 48  # never "(1 more)"


def test_depth_folds_the_table() -> None:
    layers = table(report_document(transformer(), by="layer", depth=2, top=None), "Layers")
    assert len(layers.rows) == 12
    assert column(layers, "class") == ["Block"] * 12


def test_inference_has_no_backward_columns() -> None:
    document = report_document(SAMPLES["infer"]())
    keys = {head.key for head in table(document, "Layers").heads}
    assert not keys & {"flops_backward", "kernel_backward_ns", "saved_bytes", "held_bytes"}
    assert "Inference step" in " ".join(texts(document, "Target"))


def test_nothing_that_was_not_measured_is_shown(count_only_report: Report, failed_report: Report) -> None:
    for report in (count_only_report, failed_report):
        document = report_document(report, by="layer")
        assert "Phases" not in {s.title for s in document.sections}
        keys = {head.key for head in table(document, "Layers").heads}
        assert not {key for key in keys if key.endswith("_ns")}
    assert any("no times" in text for text in texts(report_document(count_only_report), "Target"))
    assert any("All 2 runs failed" in text for text in texts(report_document(failed_report), "Target"))


def test_measured_memory_adds_up_to_its_peak(v0_report: Report) -> None:
    memory = table(report_document(v0_report), "Peak memory")
    sizes = [i for i, head in enumerate(memory.heads) if head.unit == "bytes" and head.key != "peak_bytes"]
    peak = [head.key for head in memory.heads].index("peak_bytes")
    assert len(memory.rows) == 2
    for row in memory.rows:
        assert sum(row[i] or 0 for i in sizes) == row[peak]  # type: ignore[misc]


def test_whole_tables_hold_every_row_and_column(any_report: Report) -> None:
    full = {t.name: t for t in report_document(any_report, top=1).full}
    assert next(iter(full)) == "layers"
    modules = len(any_report.static.modules) if any_report.static else 0
    assert len(full["layers"].rows) >= modules
    assert len(full["runs"].rows) == len(any_report.runs)
    empty = {t.name: t for t in report_document(SAMPLES["count_only"]()).full}
    assert {name: t.heads for name, t in full.items()} == {name: t.heads for name, t in empty.items()}


def test_the_json_is_the_report(any_report: Report) -> None:
    document = report_document(any_report)
    assert loads_report(document.json, "sample") == any_report
    assert json.loads(document.json)["schema"] == 1


def test_the_same_report_gives_the_same_document() -> None:
    assert report_document(v0_cuda()) == report_document(v0_cuda())


def test_a_roof_is_said_beside_the_layers_and_in_the_details() -> None:
    report = SAMPLES["roofed"]()
    document = report_document(report)
    layers = table(document, "Layers")
    attained = dict(zip(column(layers, "layer"), column(layers, "attained_percent"), strict=True))
    line = report.roofline_of(report.baseline())
    assert line is not None
    assert line.step is not None
    (messages,) = texts(document, "Layers")
    assert f"{line.step.attained_percent:.1f} % of the measured roofline" in messages
    conv2 = [layer for layer in line.layers if layer.path == "conv2"]
    share_sum = sum(layer.floor_ns for layer in conv2) / sum(layer.time_ns or 0 for layer in conv2)
    assert attained["conv2"] == pytest.approx(100 * share_sum)
    assert attained["(unattributed)"] is None
    assert {"bound", "floor_ns"} <= {head.key for head in table(document, "Layer counts").heads}
    assert section(document, "Roofline").detail
    assert section(document, "Roofline (datasheet)").detail
    phases = table(document, "Roofline")
    assert column(phases, "phase") == ["forward", "loss", "backward"]
    assert dict(zip([h.key for h in phases.heads], phases.totals[0], strict=True))["phase"] == "step"


def test_another_run_stands_under_its_own_roofline() -> None:
    document = report_document(SAMPLES["roofed"](), run="no-tf32")
    assert "Roofline by datasheet" not in {s.title for s in document.sections}
    rows = next(t for t in document.full if t.name == "layers")
    keys = [head.key for head in rows.heads]
    math = {row[keys.index("path")]: row[keys.index("math")] for row in rows.rows}
    assert math["conv2"] == "fp32"
    assert math["(loss)"] is None


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_saved_samples_are_those_of_the_code(name: str) -> None:
    saved = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert saved == dumps(SAMPLES[name]()), "run: python tests/sample_reports.py"


@pytest.mark.parametrize("option", ["top", "depth"])
def test_negative_numbers_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match="-1"):
        report_document(v0_cpu(), **{option: -1})  # type: ignore[arg-type]


def test_steps_in_turns_stand_beside_their_ratio() -> None:
    def in_turns(run: ConfigRun, factor: float) -> ConfigRun:
        steps = [[round(MS * factor * share) + n for n in range(9)] for share in (1.0, 1.01)]
        repeats = (Repeat(steps_ns=tuple(ns), step_ns=median_interval(ns), round_ns=1) for ns in steps)
        return replace(run, further_repeats=tuple(repeats))

    report = v0_cpu()
    first = report.runs[0]
    slower = replace(first, config=replace(first.config, name="slower"))
    report = replace(report, runs=(in_turns(first, 40), in_turns(slower, 50)))
    assert first.step_ns is not None
    document = report_document(report)
    runs = table(document, "Configurations")
    assert column(runs, "step_ms") == [pytest.approx(40.2, rel=1e-3), pytest.approx(50.25, rel=1e-3)]
    assert column(runs, "marked_ratio")[1] in ("1.25x", "~1.25x")
    (note,) = [line for line in texts(document, "Configurations") if "took turns" in line]
    assert text(first.step_ns.median, "ns") in note
    assert not [line for line in texts(report_document(v0_cpu()), "Configurations") if "took turns" in line]

"""The document of `tune`: the answer in the first sentence, reasons for every rejected change, code that can be copied."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_device import INFO, SimulatedDevice

from profiler_kit import render
from profiler_kit.measurement import sweep
from profiler_kit.records.document import Document, Paragraph, Table
from profiler_kit.records.samples import Difference
from profiler_kit.records.serde import dumps, loads
from profiler_kit.records.tuning import Tuning, TuningOptions, parse_tolerance
from profiler_kit.report.charts.results import gain_chart
from profiler_kit.report.tuning import front_rows, tuning_document


def tuning(folder: Path, device: SimulatedDevice, options: TuningOptions | None = None, *changes: str) -> Tuning:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "measure_visits", device.measure_visits)
        return device.tune(folder, changes, options)


def section(document: Document, title: str) -> list[str]:
    blocks = next(section.blocks for section in document.sections if section.title == title)
    return [block.text for block in blocks if isinstance(block, Paragraph)]


def titles(document: Document) -> list[str]:
    return [section.title for section in document.sections]


@pytest.mark.parametrize(("factor", "words"), [(0.9, ", too little."), (1.1, ", too much."), (1.0, ").")])
def test_an_estimate_that_the_measurement_contradicts_is_named(factor: float, words: str, tmp_path: Path) -> None:
    result = tuning(tmp_path, SimulatedDevice(times={"benchmark": 0.5}, noise=0.0005), None, "benchmark")
    assert result.gain is not None
    gain = replace(result.gain, ratio=0.5 * factor, low=0.49 * factor, high=0.51 * factor)
    assert section(tuning_document(replace(result, gain=gain)), "Result")[0].endswith(words)


def test_the_answer_names_changes_gain_and_effects(tmp_path: Path) -> None:
    device = SimulatedDevice(
        times={"benchmark": 0.5}, peaks={"benchmark": 2.0}, errors={"benchmark": 2e-4}, noise=0.0005
    )
    document = tuning_document(tuning(tmp_path, device, None, "benchmark"))
    result = section(document, "Result")
    assert result[0].startswith("Use benchmark: 50.")
    assert "% less (4" in result[0] or "% less (5" in result[0]
    assert "step time, re-measured in 3 and 3 fresh processes. The search had estimated " in result[0]
    assert "too much" not in result[0]
    assert "peak 1 GiB -> 2 GiB, error against float64 1.0e-4 -> 2.0e-4." in result[1]
    accepted = "up to 1.0e-2, 1.0e-1 with reduced precision (tolerance 10x,0.01, the baseline has 1.0e-4)."
    assert f"Accepted error: {accepted}" in result
    code = section(document, "Lines to paste")
    assert code == ["# Before the model is built: benchmark\ntorch.backends.cudnn.benchmark = True"]


def test_the_chart_has_the_gain_of_each_measured_change(tmp_path: Path) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5, "channels_last": 1.5}, noise=0.0005)
    result = tuning(tmp_path, device, None, "benchmark", "channels_last")
    (chart,) = gain_chart(result)
    first, *others = chart.data["rows"]
    assert result.gain is not None
    assert (first["value"], first["low"], first["high"]) == (result.gain.ratio, result.gain.low, result.gain.high)
    measured = [attempt for attempt in result.attempts if attempt.gain is not None]
    assert [row["note"] for row in others] == [attempt.outcome for attempt in measured]
    assert [row["outcome"] for row in others] == [
        attempt.gain.outcome for attempt in measured if attempt.gain is not None
    ]
    assert {"better", "worse"} <= {row["outcome"] for row in others}
    assert list(gain_chart(replace(result, gain=None, attempts=()))) == []


def test_every_rejected_change_has_its_reason_once(tmp_path: Path) -> None:
    device = SimulatedDevice(
        times={"benchmark": 0.5, "channels_last": 1.4, "amp_bf16": 0.4},
        errors={"amp_bf16": 0.5},
        failures={"cuda_graph": "cannot capture"},
    )
    changes = ("benchmark", "channels_last", "amp_bf16", "cuda_graph", "fused_optimizer", "no_onednn")
    document = tuning_document(tuning(tmp_path, device, None, *changes))
    rejected = section(document, "Rejected changes")
    assert len({text.partition(":")[0].partition(" ")[0] for text in rejected}) == len(rejected)
    text = "\n".join(rejected)
    assert "channels_last on top of benchmark: worse, " in text
    assert "more" in text
    assert (
        "amp_bf16 on top of benchmark: inaccurate, error 5.0e-1, above the limit of 1.0e-1 (baseline 1.0e-4)." in text
    )
    assert "cuda_graph: failed, cannot capture." in text or "cuda_graph on top of benchmark: failed, cannot" in text
    assert "fused_optimizer on top of benchmark: not sure, measured" in text
    assert "noise here." in text
    assert section(document, "Not applicable") == ["no_onednn: not applicable, the model has no convolution."]
    assert "Not tried" not in titles(document)


def test_a_part_without_its_own_contribution_is_named(tmp_path: Path) -> None:
    device = SimulatedDevice(times={"benchmark": 0.8, "fused_optimizer": 0.7})
    result = tuning(tmp_path, device, None, "benchmark", "fused_optimizer")
    assert not any("No contribution" in text for text in section(tuning_document(result), "Accepted changes"))
    no_gain = Difference(ratio=1.0, low=0.9, high=1.1, smallest_visible=0.05, outcome="same", reason="noise")
    weak = replace(result.contributions[0], gain=no_gain)
    document = tuning_document(replace(result, contributions=(weak,)))
    assert f"No contribution beside the other changes is established: {weak.change}." in section(
        document, "Accepted changes"
    )


@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupted_search_shows_what_is_known(at: int, tmp_path: Path) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5, "amp_bf16": 0.6}, interrupt_comparison=at)
    document = tuning_document(tuning(tmp_path, device, None, "benchmark", "amp_bf16"))
    assert section(document, "Result")[0].startswith("Interrupted: the search has not ended, and nothing is confirmed.")
    assert "Lines to paste" not in titles(document)
    assert render.renderer_by_name("terminal").render(document, render.RenderOptions(width=100))


def test_what_was_not_tried_is_said(tmp_path: Path) -> None:
    options = TuningOptions(budget_s=1e-9)
    result = section(tuning_document(tuning(tmp_path, SimulatedDevice(), options, "benchmark")), "Result")
    assert result[0] == "Nothing was tried."
    assert "Not tried for lack of time or processes: benchmark. Raise --budget or --processes." in result


def test_both_answers_are_shown_with_what_was_reachable(tmp_path: Path) -> None:
    device = SimulatedDevice(times={"benchmark": 0.8, "amp_bf16": 0.5}, errors={"amp_bf16": 0.016}, noise=0.0005)
    result = replace(tuning(tmp_path, device, None, "benchmark", "amp_bf16", "no_item"), reachable=0.7)
    document = tuning_document(result)
    sentences = section(document, "Result")
    assert any(text.startswith("With reduced precision: Use benchmark, amp_bf16: ") for text in sentences)
    errors = "baseline 1.0e-4, no-tf32 1.0e-4, matmul_tf32 1.0e-4, benchmark+amp_bf16 1.6e-2"
    assert f"Errors against float64: {errors}." in sentences
    assert any("may save 70.0 %" in text for text in sentences)
    assert section(document, "Lines to paste") == [
        "# Before the model is built: benchmark\ntorch.backends.cudnn.benchmark = True"
    ]
    assert any("bfloat16" in text for text in section(document, "Lines to paste, with reduced precision"))
    assert [answer.changes for answer in result.answers] == [("benchmark",), ("benchmark", "amp_bf16")]
    assert {row["name"] for row in next(iter(gain_chart(result))).data["rows"]} >= {"chosen", "reduced precision"}


def test_the_front_has_what_no_other_configuration_beats(tmp_path: Path) -> None:
    device = SimulatedDevice(
        times={"benchmark": 0.8, "amp_bf16": 0.5},
        peaks={"benchmark": 2.0, "amp_bf16": 0.5},
        errors={"amp_bf16": 0.016},
        noise=0.0005,
    )
    rows = front_rows(tuning(tmp_path, device, None, "benchmark", "amp_bf16"))
    assert [row.config for row in rows] == [
        "benchmark+amp_bf16",
        "benchmark",
        "default",
    ]  # default has the smaller peak
    figures = [(row.ratio, row.peak_bytes or 0, row.max_relative_error or 0.0) for row in rows]
    assert not any(all(x <= y for x, y in zip(a, b, strict=True)) for a in figures for b in figures if a is not b)


def test_code_is_copied_from_the_terminal_and_from_markdown(tmp_path: Path) -> None:
    device = SimulatedDevice(times={"checkpoint=0": 0.5, "amp_fp16": 0.5})
    result = tuning(tmp_path, device, None, "checkpoint=0", "amp_fp16")
    document = tuning_document(result)
    printed = str(render.renderer_by_name("terminal").render(document, render.RenderOptions(width=60)))
    markdown = str(render.renderer_by_name("markdown").render(document, render.RenderOptions()))
    assert result.reduced is not None
    code = (*result.code, *result.reduced.code)
    assert len(code) == 4
    for block in code:
        ast.parse(block.code)
        assert f"\n{block.code.strip()}\n" in printed
        assert f"\n{block.code.strip()}\n```" in markdown.replace("\n\n```", "\n```")
    assert markdown.count("```python\n# ") == 4


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    device = SimulatedDevice(failures={"benchmark": "<script>\x1b[31m"})
    result = tuning(tmp_path, device, None, "benchmark")
    document = tuning_document(replace(result, target=replace(INFO, name="<b>\x1b[1mNet")))
    html = render.renderer_by_name("html").render(document, render.RenderOptions(detail=True))
    html = html.decode() if isinstance(html, bytes) else html
    assert "<script>\x1b" not in html
    assert "<b>\\x1b" not in html
    assert "<b>\x1b" not in html
    printed = render.renderer_by_name("terminal").render(document, render.RenderOptions(width=100))
    assert "\x1b" not in str(printed)


def test_the_file_survives_and_sums_to_the_same(tmp_path: Path) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5, "amp_bf16": 0.6})
    result = tuning(tmp_path, device, TuningOptions(tolerance="any"), "benchmark", "amp_bf16")
    assert loads(Tuning, dumps(result), "x") == result
    assert result.error_limit is None
    attempts = next(table for table in tuning_document(result).full if isinstance(table, Table))
    assert len(attempts.rows) == len(result.attempts)


@pytest.mark.parametrize(
    ("written", "value"), [("0.01", "0.01"), ("10X", "10x"), (" any ", "any"), ("0", "0"), ("10x, 0.01", "10x,0.01")]
)
def test_tolerances(written: str, value: str) -> None:
    assert parse_tolerance(written) == value


@pytest.mark.parametrize("written", ["", "x", "-1", "nan", "inf", "0.5x", "1%", "10x,any", "1,,2", "0.1 0.2"])
def test_wrong_tolerances(written: str) -> None:
    with pytest.raises(ValueError, match="not a tolerance"):
        parse_tolerance(written)


def test_limits_are_relative_to_the_baseline() -> None:
    assert TuningOptions(tolerance="0.01").error_limit(1e-4) == pytest.approx(0.0101)
    assert TuningOptions(tolerance="10x").error_limit(1e-4) == pytest.approx(1e-3)
    assert TuningOptions(tolerance="10x").error_limit(None) is None
    assert TuningOptions().error_limit(1e-6) == pytest.approx(0.010001)
    assert TuningOptions().error_limit(2e-2) == pytest.approx(0.2)  # TF32 in a deep network
    assert TuningOptions(tolerance="any").error_limit(None) == float("inf")


def test_gains_in_words() -> None:
    gain = Difference(ratio=0.65, low=0.63, high=0.67, smallest_visible=0.02, outcome="better")
    assert gain.saved_text == "35.0 % less (33.0 to 37.0 %)"
    worse = Difference(ratio=1.2, low=1.1, high=1.3, smallest_visible=0.02, outcome="worse")
    assert worse.saved_text == "20.0 % more (10.0 to 30.0 %)"
    unsure = Difference(ratio=0.98, low=0.93, high=1.03, smallest_visible=0.1, outcome="same")
    assert unsure.saved_text == "2.0 % less (-3.0 to 7.0 %)"
    assert Difference(ratio=0.5, low=0.5, high=0.5, smallest_visible=0.01, outcome="better").saved_text == "50.0 % less"


def test_a_gain_that_could_not_be_confirmed_is_named(tmp_path: Path) -> None:
    result = tuning(tmp_path, SimulatedDevice(times={"benchmark": 0.5}), None, "benchmark")
    attempts = tuple(replace(attempt, outcome="better") for attempt in result.attempts[:1])
    result = replace(result, attempts=attempts, chosen=None, gain=None, changes=(), outcome="nothing better")
    answer = section(tuning_document(result), "Result")[0]
    assert answer.startswith("Nothing is confirmed: benchmark seemed to improve the step time")
    assert answer.endswith("Raise --budget or --processes.")

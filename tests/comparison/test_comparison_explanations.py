"""The usual explanations, put to the test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_reports import MIB, node, peak, report, run, static

from profiler_kit.comparison.compare import compare
from profiler_kit.records.comparison import Comparison, Explanation
from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.counts import MemoryCategories, MemoryEstimate, WhatIf
from profiler_kit.records.document import Table
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import read_report, to_json
from profiler_kit.records.traces import PhaseTime
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report.comparison import comparison_document

MEASURED = Path(__file__).resolve().parents[2] / "docs" / "measured"


def net(
    name: str, macs: int = 1000, params: int = 100, saved: int = 50 * MIB, runs: list[ConfigRun] | None = None
) -> Report:
    return report([node(f"{name}_conv", macs=macs, params=params, saved_bytes=saved)], name=name, runs=runs or [])


def told(found: Comparison, key: str, config: str | None = "default") -> Explanation | None:
    return next((one for one in found.explanations if (one.key, one.config) == (key, config)), None)


def clocks(loss_watch: int, loss_kernel: int) -> tuple[PhaseTime, ...]:
    """A step of 100 by either clock."""
    return (
        PhaseTime(phase="forward", stopwatch_ns=100 - loss_watch, kernel_ns=100 - loss_kernel),
        PhaseTime(phase="loss", stopwatch_ns=loss_watch, kernel_ns=loss_kernel),
    )


@pytest.mark.parametrize(
    ("watch", "kernel", "verdict"),
    [(90, 1, "wrong"), (60, 50, "right"), (10, 1, None), (90, 75, "right")],
)
def test_the_loss_by_stopwatch_and_by_kernels(watch: int, kernel: int, verdict: str | None) -> None:
    a, b = (net(name, runs=[run(ms=ms, phases=clocks(watch, kernel))]) for name, ms in (("a", 10), ("b", 20)))
    found = told(compare(a, b), "loss")
    assert (found.verdict if found is not None else None) == verdict
    if found is not None:
        assert [one.value for one in found.numbers] == [watch, watch, kernel, kernel]
        assert f"{watch} % of a's step" in found.sentence
        assert f"{kernel} % and {kernel} %" in found.sentence


def test_the_loss_is_not_blamed_where_one_side_has_no_such_clock_or_nothing_differs() -> None:
    a = net("a", runs=[run(ms=10, phases=clocks(90, 1))])
    assert told(compare(a, net("b", runs=[run(ms=20)])), "loss") is None
    assert told(compare(a, net("b", runs=[run(ms=10, phases=clocks(90, 1))])), "loss") is None


@pytest.mark.parametrize(
    ("params", "ms", "verdict", "off_by"),
    [
        ((100, 200), (20, 10), "wrong", None),
        ((100, 200), (10, 10.1), "wrong", None),  # no difference beyond noise
        ((100, 200), (10, 20), "right", 1.0),
        ((100, 200), (10, 40), "off", 2.0),
        ((200, 100), (40, 10), "off", 2.0),
        ((100, 101), (10, 20), None, None),  # nobody explains anything by that
    ],
)
def test_more_parameters_are_slower(
    params: tuple[int, int], ms: tuple[float, float], verdict: str | None, off_by: float | None
) -> None:
    a, b = (net(name, params=count, runs=[run(ms=time)]) for name, count, time in zip("ab", params, ms, strict=True))
    found = told(compare(a, b), "parameters")
    assert (found.verdict if found is not None else None) == verdict
    assert (found.off_by if found is not None else None) == (pytest.approx(off_by) if off_by is not None else None)


@pytest.mark.parametrize(
    ("macs", "ms", "verdict", "off_by"),
    [
        ((3000, 1000), (30, 10), "right", 1.0),
        ((3000, 1000), (60, 10), "off", 2.0),
        ((1000, 3000), (20, 10), "wrong", None),
        ((1000, 1000), (20, 10), None, None),
    ],
)
def test_flops_predict_the_time(
    macs: tuple[int, int], ms: tuple[float, float], verdict: str | None, off_by: float | None
) -> None:
    a, b = (net(name, macs=count, runs=[run(ms=time)]) for name, count, time in zip("ab", macs, ms, strict=True))
    found = told(compare(a, b), "flops")
    assert (found.verdict if found is not None else None) == verdict
    assert (found.off_by if found is not None else None) == (pytest.approx(off_by) if off_by is not None else None)


@pytest.mark.parametrize(
    ("saved", "verdict"), [((80, 20), "wrong"), ((20, 20), "wrong"), ((20, 120), "right"), ((20, 40), "off")]
)
def test_a_higher_peak_is_more_activations(saved: tuple[int, int], verdict: str) -> None:
    peaks = (
        peak(200 * MIB, saved_activations=saved[0] * MIB),
        peak(300 * MIB, saved_activations=saved[1] * MIB, workspace=MIB),
    )
    a, b = (
        net(name, saved=size * MIB, runs=[run(memory=top)]) for name, size, top in zip("ab", saved, peaks, strict=True)
    )
    found = told(compare(a, b), "activations")
    assert found is not None
    assert found.verdict == verdict
    assert found.predicts == "+100 MiB saved"
    assert told(compare(a, a), "activations") is None


def test_a_predicted_peak_is_tested_where_none_was_measured() -> None:
    def counted(name: str, saved: int, top: int, temporaries: int) -> Report:
        nodes = [node("conv", saved_bytes=saved)]
        memory = MemoryEstimate(
            peak_bytes=top,
            peak_at="backward",
            categories=MemoryCategories(saved_activations=saved, temporaries=temporaries),
        )
        return report(count=static(nodes, memory=memory), name=name)

    found = compare(counted("a", 80 * MIB, 100 * MIB, 20 * MIB), counted("b", 20 * MIB, 200 * MIB, 180 * MIB))
    one = told(found, "activations", None)
    assert one is not None
    assert one.verdict == "wrong"
    assert f"Predicted: {one.sentence}" in found.sentences


def checkpointed(name: str, ms: tuple[float, float], mib: tuple[int, int]) -> Report:
    config = RunConfig(name=f"checkpoint={name}", settings=(NamedValue(name="checkpoint", value=name),))
    after = replace(run(ms=ms[1], peak_allocated_bytes=mib[1] * MIB), config=config)
    return net(name, runs=[run(ms=ms[0], peak_allocated_bytes=mib[0] * MIB), after])


@pytest.mark.parametrize(
    ("ms", "mib", "verdict"),
    [((10, 13), (400, 300), "wrong"), ((10, 9), (400, 300), "right"), ((10, 9), (400, 400), "wrong")],
)
def test_checkpointing_that_was_run_on_both_sides(ms: tuple[float, float], mib: tuple[int, int], verdict: str) -> None:
    a, b = checkpointed("a", ms, mib), checkpointed("b", ms, mib)
    found = told(compare(a, b), "checkpointing")
    assert found is not None
    assert found.verdict == verdict
    assert found.numbers[0].value == pytest.approx(ms[1] / ms[0])
    assert told(compare(a, net("b", runs=[run(ms=10)])), "checkpointing") is None


def test_checkpointing_that_was_simulated_costs_work() -> None:
    what_if = WhatIf(
        change="checkpoint conv",
        allocated_bytes=1,
        allocated_low_bytes=1,
        allocated_high_bytes=1,
        total_bytes=1,
        total_high_bytes=1,
        checkpoint=("conv",),
        difference_bytes=-10 * MIB,
        recompute_percent=25.0,
    )

    def simulated(name: str, ms: float) -> Report:
        count = static([node("conv", macs=1000)])
        assert count.memory is not None
        memory = replace(count.memory, what_ifs=(what_if,))
        return report(count=replace(count, memory=memory), name=name, runs=[run(ms=ms)])

    found = told(compare(simulated("a", 10), simulated("b", 20)), "checkpointing")
    assert found is not None
    assert (found.verdict, found.measured) == ("off", "-10 MiB and -10 MiB, 25 % and 25 % more work")


@pytest.mark.parametrize(("kept", "verdict"), [(5, "wrong"), (100, None)])
def test_checkpointing_can_take_no_more_than_is_kept(kept: int, verdict: str | None) -> None:
    a = net("a", runs=[run(memory=peak(100 * MIB, saved_activations=50 * MIB))])
    b = net("b", runs=[run(memory=peak(300 * MIB, saved_activations=kept * MIB))])
    found = told(compare(a, b), "checkpointing")
    assert (found.verdict if found is not None else None) == verdict


@pytest.fixture(scope="module")
def measured() -> Comparison:
    return compare(*(read_report(MEASURED / f"convnet_{name}_h100.json") for name in ("v0", "v1")))


def test_the_slow_small_network_is_explained_by_itself(measured: Comparison) -> None:
    """The story of the question, out of two saved reports: work, algorithm, workspace; not the loss, not the parameters."""
    assert {"default", "no-tf32"} == set(measured.telling)
    for config in measured.telling:
        verdicts = {one.key: one.verdict for one in measured.explanations if one.config == config}
        assert (verdicts["loss"], verdicts["parameters"]) == ("wrong", "wrong")
    memory = told(measured, "activations", "no-tf32")
    assert memory is not None
    assert memory.verdict == "wrong"
    assert "ConvNetV1 has a higher peak than ConvNetV0" in memory.sentence
    assert "in conv_r1's forward (FFT in fp32)" in memory.sentence
    flops = told(measured, "flops", "no-tf32")
    time = next(one for one in measured.times if one.config == "no-tf32")
    assert flops is not None
    assert flops.off_by == pytest.approx(time.efficiency_ratio, rel=1e-6)
    result = " ".join(measured.sentences)
    for key in ("loss", "parameters", "activations"):
        assert any(one.sentence in result for one in measured.explanations if one.key == key)
    assert "conv2 (99.5 %" in result
    assert result.count(". ") <= 13


def test_the_table_tells_prediction_and_finding_at_the_usual_width(measured: Comparison) -> None:
    document = comparison_document(measured)
    section = next(one for one in document.sections if one.title == "Usual explanations")
    tables = [block for block in section.blocks if isinstance(block, Table)]
    assert sum(len(table.rows) for table in tables) == len(measured.explanations)
    shown = renderer_by_name("terminal").render(document, RenderOptions(width=100))
    assert "of Usual explanations" not in shown  # no column was left out
    assert "Predicts" in shown


def test_every_figure_of_an_explanation_is_in_the_json(measured: Comparison) -> None:
    data = to_json(measured)
    assert {one["key"] for one in data["explanations"]} == {one.key for one in measured.explanations}
    assert all(one["numbers"] for one in data["explanations"])

"""Tests of the case study: figures from sample reports, loops, page and command line."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_figures import MS, count, cuda, naive, phases, run
from traced_runs import traced_run

from profiler_kit.errors import ReportError, UsageError
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import Cost, ModuleNode, StaticCount
from profiler_kit.records.report import Report, Tool
from profiler_kit.records.runs import ConfigRun, Failure, OpMemory, PeakMemory
from profiler_kit.records.samples import Interval
from profiler_kit.records.serde import from_json
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.traces import TraceKernel, TraceModule
from scripts.case_study import __main__ as script
from scripts.case_study import cost_verdicts, measurement, page
from scripts.case_study.claims import CLAIMS, LETTERS
from scripts.case_study.figures import (
    Figures,
    NaiveLoop,
    ShapeLoop,
    code_digest,
    count_figures,
    load,
    merge,
    run_figures,
    save,
)

pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]


# --- all claims ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", CLAIMS, ids=LETTERS)
def test_without_figures_no_claim_gets_a_verdict(claim: Any) -> None:
    assert claim.judge(cuda()).verdict == "Not measured"
    assert claim.judge(Figures()).verdict in ("Not measured", "Needs CUDA")


def full_figures() -> Figures:
    """Sample figures that fill every table."""
    timings = phases(forward=(5, 37), loss=(90, 0), backward=(5, 63))
    configs = sorted(
        {c for by_model in measurement.NEEDED_CONFIGS.values() for names in by_model.values() for c in names}
    )
    runs = [
        run(m, c, 8.0 if "benchmark" in c else 10.0, phases=timings, peak_allocated_bytes=5, first_step_peak_bytes=6,
            workspace_bytes=200, workspace_path="c", repeatable_outputs=True, repeatable_gradients=True, output_digest="a",
            gradient_digest="b", tuning_ns=99, dominant_path="c", dominant_family="conv:fft")
        for m in measurement.FILES for c in configs
    ]  # fmt: skip
    counts = tuple(count(m, s, 10**6 * s) for m in ("v0", "v1") for s in (64, 256))
    loop = ShapeLoop(benchmark=False, batch=2, sizes=(64, 68), cycles_ns=(5, 4, 3), tail_ns=9)
    return cuda(
        runs=tuple(runs), counts=counts, shapes=(loop, replace(loop, benchmark=True)),
        naive=(naive(False, 9, 9, 3), naive(True, 9, 9, 3)), problems=("conv: no memory",), claims=LETTERS,
    )  # fmt: skip


def test_figures_survive_json_and_give_the_same_page(tmp_path: Path) -> None:
    figures = full_figures()
    save(figures, tmp_path / "deep" / "figures.json")
    loaded = load(tmp_path / "deep" / "figures.json")
    assert loaded == figures
    assert page.markdown(loaded) == page.markdown(figures)


def test_files_without_figures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"absent\.json"):
        load(tmp_path / "absent.json")
    (tmp_path / "bad.json").write_text('{"counts": [{"model": 3}]}')
    with pytest.raises(ReportError, match="counts"):
        load(tmp_path / "bad.json")


def test_the_page_leaves_no_slot_and_shows_every_verdict_and_table() -> None:
    figures = full_figures()
    text = page.markdown(figures)
    assert "{{" not in text
    for claim in CLAIMS:
        judgment = claim.judge(figures)
        assert judgment.table is not None
        assert judgment.table.caption in text
        assert f'<a id="claim-{claim.letter}"></a>' in text
        assert f"**Verdict: {judgment.verdict}.**" in text
    assert "- conv: no memory" in text


def test_the_terminal_shows_the_selected_claims_only() -> None:
    text = page.terminal(full_figures(), ("a", "d"))
    assert [line for line in text.splitlines() if line.startswith("(")] == [
        f"({claim.letter}) {claim.title}" for claim in CLAIMS if claim.letter in ("a", "d")
    ]
    assert text.count("verdict:") == 2


def test_the_committed_page_matches_the_committed_figures() -> None:
    """After a change of page.md, a verdict or the figures, regenerate the page."""
    saved = ROOT / "docs" / "measured" / "case_slow_small_network_h100.json"
    figures = load(saved) if saved.exists() else cuda()
    assert (ROOT / "docs" / "case-studies.md").read_text() == page.markdown(figures)


# --- figures from reports ------------------------------------------------------------------------------------------


def report(runs: tuple[ConfigRun, ...]) -> Report:
    modules = (
        ModuleNode(path="", class_name="Net"),
        ModuleNode(path="small", class_name="Conv2d", forward=Cost(macs=10, flops=20)),
        ModuleNode(path="large", class_name="Conv2d", forward=Cost(macs=90, flops=180)),
    )
    total = Cost(macs=100, flops=200)
    nothing = Cost()
    static = StaticCount(
        convention="", params=7, trainable_params=7, param_bytes=28, forward=total, loss=nothing, backward=nothing,
        recompute=nothing, saved_bytes=11, uncounted=(), modules=modules,
    )  # fmt: skip
    info = TargetInfo(spec="x.py", name="Net", inputs=(), mode="train", loss=None, optimizer=None)
    return Report(tool=Tool(name="t", version="0"), created="", target=info, static=static, runs=runs)


def test_run_figures_name_the_kernels_of_the_largest_layer_and_the_largest_workspace() -> None:
    def kernel(family: str, ns: int) -> TraceKernel:
        return TraceKernel(name=family, family=family, calls=1, kernel_ns=ns)

    layers = (
        TraceModule(path="small", phase="forward", kernel_ns=500, kernels=(kernel("pointwise", 500),)),
        TraceModule(
            path="large",
            phase="forward",
            kernel_ns=120,
            kernels=(kernel("conv:fft", 30), kernel("gemm:complex", 40), kernel("conv:layout", 50)),
        ),
        TraceModule(path="large", phase="backward", kernel_ns=900, kernels=(kernel("conv:direct", 900),)),
    )
    op = OpMemory(path="large", phase="forward", op="conv", before_bytes=1, growth_bytes=2, workspace_bytes=30)
    memory = PeakMemory(
        peak_path="large", peak_phase="forward", peak_op="conv", peak_bytes=33, parameters=1, gradients=0,
        optimizer_state=0, inputs=0, saved_activations=2, workspace=30, rest=0, ops=(op,),
    )  # fmt: skip
    good = traced_run(
        config=RunConfig(name="default"), steps_ns=(1, 2, 3), step_ns=Interval(median=2, low=1, high=3), modules=layers,
        memory=memory, workspace_bytes=30,
    )  # fmt: skip
    bad = ConfigRun(config=RunConfig(name="benchmark"), failure=Failure(kind="timeout", message="no end"))
    first, second = run_figures("v0", report((good, bad)), process=2)
    assert (first.dominant_path, first.dominant_family, first.dominant_ns) == ("large", "conv:fft", 120)
    assert (first.workspace_path, first.workspace_bytes, first.steps, first.process) == ("large", 30, 3, 2)
    assert second.failure == "timeout: no end"
    assert cuda(runs=(first, second)).run("v0", "benchmark", process=2) is None


def test_count_figures_name_the_largest_layer() -> None:
    static = report(()).static
    assert static is not None
    counted = count_figures("v0", 64, 2, static)
    assert (counted.dominant_path, counted.dominant_share, counted.macs, counted.saved_bytes) == ("large", 0.9, 100, 11)


# --- merging figures into an older file ------------------------------------------------------------------------------


def test_new_figures_replace_figures_of_the_same_case_only() -> None:
    old = cuda(
        claims=("b", "d"), runs=(run("v0", "default", 10.0), run("v0", "benchmark", 8.0)),
        counts=(count("v0", 64, 1), count("v0", 256, 2)), naive=(naive(False, 1, 1, 1),),
    )  # fmt: skip
    new = cuda(claims=("a",), runs=(run("v0", "default", 11.0),), counts=(count("v0", 64, 3),))
    combined = merge(old, new)
    assert combined.claims == ("a", "b", "d")
    assert {r.config: r.step_ns.median for r in combined.runs if r.step_ns} == {"default": 11 * MS, "benchmark": 8 * MS}
    assert {c.size: c.macs for c in combined.counts} == {64: 3, 256: 2}
    assert combined.naive == old.naive


def test_figures_of_another_machine_are_refused() -> None:
    with pytest.raises(UsageError, match="machine"):
        merge(cuda(size=256), cuda(size=128))
    with pytest.raises(UsageError, match="code"):
        merge(cuda(code="1f"), cuda(code=code_digest()))


def test_the_time_ratio_is_work_times_efficiency() -> None:
    counts = (count("v0", 256, 66, batch=2), count("v1", 256, 10))
    table = cost_verdicts.make_ratio_table(
        cuda(counts=counts, runs=(run("v0", "default", 40.0), run("v1", "default", 10.0)))
    )
    assert table is not None
    ((_, _, _, ratio, work, efficiency, *_),) = table.rows
    assert ratio == 4.0
    assert work == pytest.approx(3.3)
    assert efficiency == pytest.approx(4.0 / 3.3)


# --- measurement -----------------------------------------------------------------------------------------------------


def test_every_claim_lists_its_configurations() -> None:
    assert set(measurement.NEEDED_CONFIGS) == set(LETTERS)
    assert measurement.configurations(["b", "e", "i"]) == {}
    assert measurement.configurations(["a", "h"])["v0"] == ("default", "no-tf32", "cudnn-off")


@pytest.mark.parametrize("size", [16, 32, 64, 256, 512])
def test_varying_sizes_are_a_dozen_different_multiples_of_four(size: int) -> None:
    sizes = measurement.shape_sizes(size)
    assert len(set(sizes)) == 12
    assert all(s % 4 == 0 and s >= 16 for s in sizes)


def test_letters_are_checked_and_ordered() -> None:
    assert script.parse_letters("d, a") == ("a", "d")
    with pytest.raises(argparse.ArgumentTypeError, match="'z'"):
        script.parse_letters("a,z")


@pytest.mark.parametrize("model", ["convnet_v0", "single_conv"])
def test_the_naive_loop_runs_in_a_process_of_its_own(model: str) -> None:
    readings = child("naive", "--model", model, "--benchmark", "on", "--batch", "1", "--size", "16", "--steps", "2")
    parsed = from_json(NaiveLoop, {"model": model, "mode": "train", "benchmark": True, "steps": 2} | readings, "")
    assert min(parsed.cold_ns, parsed.warm_ns, parsed.true_ns, parsed.flipped_ns) > 0
    assert [p.phase for p in parsed.early] == ["forward", "loss", "backward", "optimizer"]
    total_ns = sum(p.stopwatch_ns or 0 for p in parsed.late)
    assert 0 < total_ns < 100 * parsed.true_ns


def test_the_shape_loop_times_every_round() -> None:
    readings = child("shapes", "--benchmark", "off", "--batch", "2", "--sizes", "16,20", "--cycles", "2")
    assert len(readings["cycles_ns"]) == 2
    assert min(*readings["cycles_ns"], readings["tail_ns"]) > 0


def child(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(ROOT / "scripts" / "case_study" / "loops.py"), *arguments]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert printed["environment"]["device"] == "cpu"
    readings: dict[str, Any] = printed["readings"]
    return readings


def test_a_failed_loop_is_listed_and_does_not_stop_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(command: list[str], **_: object) -> object:
        raise subprocess.CalledProcessError(1, command, stderr="Traceback\nRuntimeError: out of memory\n")

    monkeypatch.setattr(subprocess, "run", failing)
    figures = measurement.measure(measurement.Options(claims=("i",)), on_progress=lambda _: None)
    assert figures.naive == ()
    assert len(figures.problems) == 2
    assert all("out of memory" in problem for problem in figures.problems)


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupt)
    monkeypatch.setattr(measurement, "COUNTED_SIZES", (16,))
    figures = measurement.measure(measurement.Options(claims=("b", "i"), size=16, batch=1), on_progress=lambda _: None)
    assert [c.model for c in figures.counts] == ["v0", "v1"]
    assert len(figures.problems) == 1
    assert figures.problems[0].startswith("interrupted")


def test_an_analysis_on_a_cpu_gives_figures_for_the_loss(tmp_path: Path) -> None:
    """The smallest full run: the command measures, saves, and judges the saved figures in the same way."""
    saved = tmp_path / "figures.json"
    command = [sys.executable, "-m", "scripts.case_study", "--claims", "a", "--device", "cpu"]
    command += ["--size", "16", "--batch", "1", "--budget", "2", "--json", str(saved)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    figures = load(saved)
    assert {(r.model, r.failure) for r in figures.runs} == {("v0", None), ("v1", None)}
    assert printed == page.terminal(figures, ("a",))
    assert "verdict: False" in printed

"""The case study's judgements on made-up figures, its figures from made-up reports, its own loops, and its page."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import bench_overhead  # noqa: E402
import case_slow_small_network as script  # noqa: E402
from case_study import gather, judges_flags, judges_where, page  # noqa: E402
from case_study.claims import CLAIMS, LETTERS  # noqa: E402
from case_study.figures import (  # noqa: E402
    CountFigures,
    Figures,
    NaiveLoop,
    RunFigures,
    ShapeLoop,
    count_figures,
    load,
    merged,
    run_figures,
    save,
)
from case_study.judgement import Verdict  # noqa: E402
from case_study.pairs import Pair, noise_of, pairs  # noqa: E402

from profiler_kit.errors import ReportError, UsageError  # noqa: E402
from profiler_kit.measure.steps import Runner  # noqa: E402
from profiler_kit.records.counts import Cost, ModuleNode, StaticCount  # noqa: E402
from profiler_kit.records.report import Report, Tool  # noqa: E402
from profiler_kit.records.runs import (  # noqa: E402
    ConfigRun,
    Failure,
    Interval,
    KernelStat,
    LayerTiming,
    OpMemory,
    PeakMemory,
    PhaseTiming,
    RunConfig,
)
from profiler_kit.records.serde import from_json  # noqa: E402
from profiler_kit.records.target import TargetInfo  # noqa: E402

MS = 1_000_000


def run(model: str, config: str, step_ms: float = 10.0, **more: Any) -> RunFigures:
    """A run whose step lies within 1 % of `step_ms`."""
    step_ns = round(step_ms * MS)
    interval = Interval(median=step_ns, low=step_ns * 995 // 1000, high=step_ns * 1005 // 1000)
    return RunFigures(model=model, config=config, steps=50, step_ns=interval, **more)


def again(first: RunFigures, step_ms: float) -> RunFigures:
    repeated = run(first.model, f"{first.config} (again)", step_ms)
    return replace(repeated, repeat_of=first.config)


def phases(**by_phase: tuple[int, int]) -> tuple[PhaseTiming, ...]:
    """Phases by name, each with its stopwatch and its kernel time."""
    return tuple(
        PhaseTiming(phase=phase, stopwatch_ns=clocks[0], event_ns=clocks[1], kernel_ns=clocks[1])  # type: ignore[arg-type]
        for phase, clocks in by_phase.items()
    )


def count(model: str, size: int, macs: int, *, batch: int = 1, saved: int = 100) -> CountFigures:
    return CountFigures(
        model=model,
        size=size,
        batch=batch,
        params=1,
        macs=macs,
        saved_bytes=saved,
        dominant_path="c",
        dominant_share=0.9,
    )


def cuda(**more: Any) -> Figures:
    return Figures(cuda=True, **more)


# --- a: the loss ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stopwatch", "kernel", "verdict"),
    [(900, 1, "fails"), (900, 900, "holds"), (900, 60, "holds in part")],
)
def test_the_loss_is_judged_by_device_time_not_by_the_stopwatch(stopwatch: int, kernel: int, verdict: Verdict) -> None:
    timed = phases(forward=(50, 40), loss=(stopwatch, kernel), backward=(50, 60))
    judged = judges_where.judge_loss(cuda(runs=(run("v0", "default", phases=timed),)))
    assert judged.verdict == verdict
    assert judged.table is not None
    ((_, _, by_stopwatch, _, by_kernel, *_),) = judged.table.rows
    assert by_stopwatch == pytest.approx(90.0)
    assert by_kernel == pytest.approx(100 * kernel / (kernel + 100))


def test_the_loss_is_not_judged_without_kernel_time() -> None:
    unread = (PhaseTiming(phase="loss", stopwatch_ns=5), PhaseTiming(phase="forward", stopwatch_ns=5))
    assert judges_where.judge_loss(cuda(runs=(run("v0", "default", phases=unread),))).verdict == "not measured"


def test_on_a_cpu_the_loss_fails_and_the_reason_is_said() -> None:
    timed = phases(forward=(50, 50), loss=(1, 1), backward=(50, 50))
    judged = judges_where.judge_loss(Figures(runs=(run("v0", "default", phases=timed),)))
    assert judged.verdict == "fails"
    assert any("CPU" in sentence for sentence in judged.sentences)


# --- b: operations ----------------------------------------------------------------------------------------------------


def test_operations_fail_when_no_size_gives_both_numbers() -> None:
    counts = [count("v0", s, 386_461 * s * s) for s in (32, 40, 256)] + [
        count("v1", s, 116_261 * s * s) for s in (32, 40, 256)
    ]
    judged = judges_where.judge_operations(Figures(counts=tuple(counts)))
    assert judged.verdict == "fails"
    assert any("direction is right" in sentence for sentence in judged.sentences)


@pytest.mark.parametrize("factor", [1, 2])
def test_operations_hold_when_a_size_gives_both_as_macs_or_as_flops(factor: int) -> None:
    counts = (
        count("v0", 40, 8 * 630_000_000 // factor, batch=8),
        count("v1", 40, 270_000_000 // factor),
        count("v0", 44, 1),
        count("v1", 44, 1),
    )
    assert judges_where.judge_operations(Figures(counts=counts)).verdict == "holds"


def test_one_number_alone_does_not_hold() -> None:
    counts = (count("v0", 40, 630_000_000), count("v1", 40, 190_000_000))
    assert judges_where.judge_operations(Figures(counts=counts)).verdict == "fails"


# --- c: memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "peaks", "verdict"),
    [
        ((179, 66), (433, 1508), "holds in part"),  # saves more, peaks lower: workspace
        ((179, 66), (600, 500), "fails"),
        ((60, 66), (433, 500), "holds"),
        ((60, 66), (600, 500), "holds in part"),
    ],
)
def test_memory_looks_at_what_is_saved_and_at_the_peak(
    saved: tuple[int, int], peaks: tuple[int, int], verdict: Verdict
) -> None:
    runs = (
        run("v0", "no-tf32", peak_allocated_bytes=peaks[0], workspace_bytes=0),
        run("v1", "no-tf32", peak_allocated_bytes=peaks[1], workspace_bytes=1212, workspace_path="conv_r1"),
    )
    counts = (count("v0", 256, 1, saved=saved[0]), count("v1", 256, 1, saved=saved[1]))
    judged = judges_where.judge_memory(cuda(runs=runs, counts=counts))
    assert judged.verdict == verdict
    names_workspace = any("workspace of conv_r1" in sentence for sentence in judged.sentences)
    assert names_workspace == (peaks[0] < peaks[1])


def test_memory_of_a_cpu_says_what_is_saved_and_that_peaks_need_cuda() -> None:
    judged = judges_where.judge_memory(Figures(size=64, counts=(count("v0", 64, 1), count("v1", 64, 1))))
    assert judged.verdict == "needs CUDA"
    assert judged.sentences


# --- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_ms", "noise", "faster", "slower"),
    [(8.0, 0.01, True, False), (8.0, 0.25, False, False), (10.05, None, False, False), (13.0, 0.01, False, True)],
)
def test_a_difference_counts_when_intervals_are_apart_and_it_exceeds_the_noise(
    after_ms: float, noise: float | None, faster: bool, slower: bool
) -> None:
    pair = Pair(before=run("v0", "default"), after=run("v0", "benchmark", after_ms), noise=noise)
    assert (pair.faster, pair.slower) == (faster, slower)


@pytest.mark.parametrize(
    ("after_ms", "tuning_ms", "steps"),
    [(8.0, 100.0, 50), (8.0, 101.0, 51), (9.9, 100.0, None), (12.0, 100.0, None), (8.0, -5.0, 0)],
)
def test_break_even_is_tuning_over_the_saving_per_step(after_ms: float, tuning_ms: float, steps: int | None) -> None:
    after = run("v0", "benchmark", after_ms, tuning_ns=round(tuning_ms * MS))
    assert Pair(before=run("v0", "default"), after=after, noise=0.0).break_even_steps(0.02) == steps


def test_noise_is_the_gap_between_two_processes_of_one_configuration() -> None:
    first = run("v0", "default", 10.0)
    figures = cuda(runs=(first, again(first, 10.3), run("v1", "default")))
    assert noise_of(figures, "v0") == pytest.approx(0.03)
    assert noise_of(figures, "v1") is None


def test_a_failed_run_makes_no_pair() -> None:
    failed = RunFigures(model="v0", config="benchmark", failure="out_of_memory: no")
    assert pairs(cuda(runs=(run("v0", "default"), failed)), [("default", "benchmark")]) == []


# --- d, g, h: flags ---------------------------------------------------------------------------------------------------


def speeds(config: str, v0_ms: float, mnist_ms: float, **more: Any) -> Figures:
    runs = (
        run("v0", "default"),
        run("v0", config, v0_ms, tuning_ns=1000 * MS, **more),
        run("mnist", "default"),
        run("mnist", config, mnist_ms, tuning_ns=1000 * MS, **more),
    )
    return cuda(runs=runs)


@pytest.mark.parametrize(
    ("v0_ms", "mnist_ms", "verdict"),
    [(6.0, 8.0, "holds"), (6.0, 9.7, "holds in part"), (10.0, 9.7, "fails"), (12.0, 14.0, "fails")],
)
def test_benchmark_is_markedly_faster_from_a_tenth_on(v0_ms: float, mnist_ms: float, verdict: Verdict) -> None:
    judged = judges_flags.judge_benchmark(speeds("benchmark", v0_ms, mnist_ms))
    assert judged.verdict == verdict
    assert judged.table is not None
    paid_back = [row[-1] for row in judged.table.rows]
    assert paid_back[0] == (250 if v0_ms == 6.0 else "never")


@pytest.mark.parametrize(
    ("v0_ms", "mnist_ms", "verdict"), [(12.0, 11.0, "holds"), (12.0, 10.0, "holds in part"), (10.1, 9.0, "fails")]
)
def test_determinism_costs_from_two_percent_on(v0_ms: float, mnist_ms: float, verdict: Verdict) -> None:
    assert judges_flags.judge_deterministic(speeds("deterministic", v0_ms, mnist_ms)).verdict == verdict


@pytest.mark.parametrize(("family", "verdict"), [("conv:im2col(aten)", "holds"), ("conv:xmma_igemm", "fails")])
def test_fallback_is_seen_in_the_kernels(family: str, verdict: Verdict) -> None:
    judged = judges_flags.judge_fallback(speeds("cudnn-off", 30.0, 30.0, dominant_family=family))
    assert judged.verdict == verdict
    assert judged.table is not None
    assert [row[6] for row in judged.table.rows] == [3.0, 3.0]


# --- e: shapes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "verdict"),
    [((4366, 29, 20), "holds in part"), ((4366, 34, 33), "holds"), ((495, 29, 20), "fails")],
)
def test_shapes_tell_new_ones_from_seen_ones(on: tuple[int, ...], verdict: Verdict) -> None:
    off = ShapeLoop(benchmark=False, batch=2, sizes=(128, 144), cycles_ns=(490, 33, 31), tail_ns=26)
    judged = judges_flags.judge_shapes(cuda(shapes=(off, replace(off, benchmark=True, cycles_ns=on, tail_ns=303))))
    assert judged.verdict == verdict
    if verdict == "holds in part":
        assert any(
            "353 more rounds" in sentence for sentence in judged.sentences
        )  # (4366 - 490) / (31 - 20), rounded up


# --- f: bits ----------------------------------------------------------------------------------------------------------


def bits(config: str, process: int, digest: str, *, outputs: bool = True, gradients: bool = True) -> RunFigures:
    return run(
        "v0", config, process=process, repeatable_outputs=outputs, repeatable_gradients=gradients,
        output_digest=digest, gradient_digest=digest,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        (
            (bits("default", 1, "a"), bits("default", 2, "a"), bits("benchmark", 1, "b"), bits("benchmark", 2, "c")),
            "holds",
        ),
        (
            (bits("default", 1, "a"), bits("default", 2, "a"), bits("benchmark", 1, "b"), bits("benchmark", 2, "b")),
            "fails",
        ),
        ((bits("default", 1, "a"), bits("benchmark", 1, "b", outputs=False)), "holds in part"),
        (
            # neither is repeatable: benchmark is not the reason, so nothing is left to judge by
            (bits("default", 1, "a"), bits("default", 2, "b"), bits("benchmark", 1, "b"), bits("benchmark", 2, "c")),
            "not measured",
        ),
    ],
)
def test_reproducibility_asks_what_benchmark_changes(runs: tuple[RunFigures, ...], verdict: Verdict) -> None:
    assert judges_flags.judge_reproducibility(cuda(runs=runs)).verdict == verdict


def test_a_repeated_default_counts_as_a_process() -> None:
    first = bits("default", 1, "a")
    repeated = replace(bits("default", 1, "z"), config="default (again)", repeat_of="default")
    judged = judges_flags.judge_reproducibility(cuda(runs=(first, repeated, bits("benchmark", 1, "b"))))
    assert judged.table is not None
    assert judged.table.rows[0][:5] == ("v0", "default", 2, True, False)


# --- i: the naive loop ------------------------------------------------------------------------------------------------


def naive(benchmark: bool, cold: int, warm: int, true: int) -> NaiveLoop:
    timed = phases(forward=(1, 1), loss=(1, 1), backward=(1, 1))
    return NaiveLoop(
        model="convnet_v0", mode="train", benchmark=benchmark, steps=20, cold_ns=cold, warm_ns=warm, true_ns=true,
        flipped_ns=true, early=timed, late=timed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cold", "warm", "verdict"), [(900, 15, "holds"), (900, 100, "holds in part"), (105, 95, "fails")]
)
def test_a_naive_loop_is_held_against_the_true_step(cold: int, warm: int, verdict: Verdict) -> None:
    judged = judges_where.judge_naive(cuda(naive=(naive(False, cold, warm, 100), naive(True, cold, warm, 100))))
    assert judged.verdict == verdict
    assert any("in truth" in sentence for sentence in judged.sentences)


def test_the_naive_loop_on_a_cpu_never_holds_fully() -> None:
    assert judges_where.judge_naive(Figures(naive=(naive(False, 900, 15, 100),))).verdict == "holds in part"
    assert judges_where.judge_naive(Figures(naive=(naive(False, 101, 99, 100),))).verdict == "needs CUDA"


# --- all claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", CLAIMS, ids=LETTERS)
def test_without_figures_no_claim_gets_a_verdict(claim: Any) -> None:
    assert claim.judge(cuda()).verdict == "not measured"
    assert claim.judge(Figures()).verdict in ("not measured", "needs CUDA")


def everything() -> Figures:
    """Figures that reach every table: numbers made up, shapes as measured."""
    timed = phases(forward=(5, 37), loss=(90, 0), backward=(5, 63))
    configs = sorted({c for by_model in gather.NEEDS.values() for of_model in by_model.values() for c in of_model})
    runs = [
        run(m, c, 8.0 if "benchmark" in c else 10.0, phases=timed, peak_allocated_bytes=5, first_step_peak_bytes=6,
            workspace_bytes=200, workspace_path="c", repeatable_outputs=True, repeatable_gradients=True, output_digest="a",
            gradient_digest="b", tuning_ns=99, dominant_path="c", dominant_family="conv:fft")
        for m in gather.FILES for c in configs
    ]  # fmt: skip
    counts = tuple(count(m, s, 10**6 * s) for m in ("v0", "v1") for s in (64, 256))
    loop = ShapeLoop(benchmark=False, batch=2, sizes=(64, 68), cycles_ns=(5, 4, 3), tail_ns=9)
    return cuda(
        runs=tuple(runs), counts=counts, shapes=(loop, replace(loop, benchmark=True)),
        naive=(naive(False, 9, 9, 3), naive(True, 9, 9, 3)), problems=("conv: no memory",), claims=LETTERS,
    )  # fmt: skip


def test_figures_survive_json_and_give_the_same_page(tmp_path: Path) -> None:
    figures = everything()
    save(figures, tmp_path / "deep" / "figures.json")
    read = load(tmp_path / "deep" / "figures.json")
    assert read == figures
    assert page.markdown(read) == page.markdown(figures)


def test_figures_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot be read"):
        load(tmp_path / "absent.json")
    (tmp_path / "bad.json").write_text('{"counts": [{"model": 3}]}')
    with pytest.raises(ReportError, match="counts"):
        load(tmp_path / "bad.json")


def test_the_page_leaves_no_slot_and_shows_every_verdict_and_table() -> None:
    figures = everything()
    written = page.markdown(figures)
    assert "{{" not in written
    for claim in CLAIMS:
        judged = claim.judge(figures)
        assert judged.table is not None
        assert judged.table.caption in written
        assert f'<a id="claim-{claim.letter}"></a>' in written
        assert f"**Verdict: {judged.verdict}.**" in written
    assert "- conv: no memory" in written


def test_the_terminal_shows_the_claims_asked_for_only() -> None:
    shown = page.terminal(everything(), ("a", "d"))
    assert [line for line in shown.splitlines() if line.startswith("(")] == [
        f"({claim.letter}) {claim.title}" for claim in CLAIMS if claim.letter in ("a", "d")
    ]
    assert shown.count("verdict:") == 2


def test_the_committed_page_is_the_one_the_figures_give() -> None:
    """Whoever edits page.md, a judgement or the figures writes the page anew."""
    saved = ROOT / "docs" / "measured" / "case_slow_small_network_h100.json"
    figures = load(saved) if saved.exists() else cuda()
    assert (ROOT / "docs" / "case-studies.md").read_text() == page.markdown(figures)


# --- figures from reports ---------------------------------------------------------------------------------------------


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
    return Report(schema=1, tool=Tool(name="t", version="0"), created="", target=info, static=static, runs=runs)


def test_run_figures_name_the_kernels_of_the_largest_layer_and_the_largest_workspace() -> None:
    def kernel(family: str, ns: int) -> KernelStat:
        return KernelStat(name=family, family=family, calls=1, kernel_ns=ns)

    layers = (
        LayerTiming(path="small", phase="forward", kernel_ns=500, kernels=(kernel("pointwise", 500),)),
        LayerTiming(
            path="large", phase="forward", kernel_ns=100, kernels=(kernel("conv:layout", 30), kernel("conv:fft", 70))
        ),
        LayerTiming(path="large", phase="backward", kernel_ns=900, kernels=(kernel("conv:direct", 900),)),
    )
    op = OpMemory(path="large", phase="forward", op="conv", before_bytes=1, growth_bytes=2, workspace_bytes=30)
    memory = PeakMemory(
        peak_path="large", peak_phase="forward", peak_op="conv", peak_bytes=33, parameters=1, gradients=0,
        optimizer_state=0, inputs=0, saved_activations=2, workspace=30, rest=0, ops=(op,),
    )  # fmt: skip
    good = ConfigRun(
        config=RunConfig(name="default"), steps_ns=(1, 2, 3), step_ns=Interval(median=2, low=1, high=3), modules=layers,
        memory=memory, workspace_bytes=30,
    )  # fmt: skip
    bad = ConfigRun(config=RunConfig(name="benchmark"), failure=Failure(kind="timeout", message="no end"))
    first, second = run_figures("v0", report((good, bad)), process=2)
    assert (first.dominant_path, first.dominant_family, first.dominant_ns) == ("large", "conv:fft", 100)
    assert (first.workspace_path, first.workspace_bytes, first.steps, first.process) == ("large", 30, 3, 2)
    assert second.failure == "timeout: no end"
    assert cuda(runs=(first, second)).run("v0", "benchmark", process=2) is None


def test_count_figures_name_the_largest_layer() -> None:
    static = report(()).static
    assert static is not None
    counted = count_figures("v0", 64, 2, static)
    assert (counted.dominant_path, counted.dominant_share, counted.macs, counted.saved_bytes) == ("large", 0.9, 100, 11)


# --- more figures to an older file ------------------------------------------------------------------------------------


def test_newer_figures_replace_their_like_and_leave_the_rest() -> None:
    old = cuda(
        claims=("b", "d"), runs=(run("v0", "default", 10.0), run("v0", "benchmark", 8.0)),
        counts=(count("v0", 64, 1), count("v0", 256, 2)), naive=(naive(False, 1, 1, 1),),
    )  # fmt: skip
    new = cuda(claims=("a",), runs=(run("v0", "default", 11.0),), counts=(count("v0", 64, 3),))
    both = merged(old, new)
    assert both.claims == ("a", "b", "d")
    assert {r.config: r.step_ns.median for r in both.runs if r.step_ns} == {"default": 11 * MS, "benchmark": 8 * MS}
    assert {c.size: c.macs for c in both.counts} == {64: 3, 256: 2}
    assert both.naive == old.naive


def test_figures_of_another_machine_are_not_mixed_in() -> None:
    with pytest.raises(UsageError, match="another machine"):
        merged(cuda(size=256), cuda(size=128))


def test_the_time_ratio_is_work_times_efficiency() -> None:
    counts = (count("v0", 256, 66, batch=2), count("v1", 256, 10))
    table = judges_where.time_ratio(cuda(counts=counts, runs=(run("v0", "default", 40.0), run("v1", "default", 10.0))))
    assert table is not None
    ((_, _, _, ratio, work, efficiency, *_),) = table.rows
    assert (ratio, work) == (4.0, pytest.approx(3.3))
    assert efficiency == pytest.approx(4.0 / 3.3)


# --- the timers' cost -------------------------------------------------------------------------------------------------


def test_overhead_is_the_median_ratio_over_rounds() -> None:
    rounds = [(100.0, 101.0, 101.0, 100.0), (100.0, 101.0, 101.0, 100.0), (100.0, 300.0, 300.0, 110.0)]
    found = bench_overhead.overhead("tiny", "cpu", 10, rounds)
    assert found.ratio == pytest.approx(1.01)
    assert found.cost_ns == 1
    assert found.noise == 1.0
    assert found.kept
    assert not bench_overhead.overhead("tiny", "cpu", 10, [(100.0, 103.0, 103.0, 100.0)]).kept


def test_both_loops_train_the_same_model() -> None:
    """The bare loop and the tool's step leave the same loss curve: they make the same calls."""
    torch.manual_seed(0)
    losses = []
    for bare in (True, False):
        torch.manual_seed(0)
        runner = Runner(bench_overhead.target_of("tiny", "cpu"))
        step = bench_overhead.Bare(runner).step if bare else runner.step
        for _ in range(5):
            step()
        losses.append([p.detach().clone() for p in runner.target.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*losses, strict=True))


# --- what is measured -------------------------------------------------------------------------------------------------


def test_every_claim_says_what_it_needs() -> None:
    assert set(gather.NEEDS) == set(LETTERS)
    assert gather.configurations(["b", "e", "i"]) == {}
    assert gather.configurations(["a", "h"])["v0"] == ("default", "no-tf32", "cudnn-off")


@pytest.mark.parametrize("size", [16, 32, 64, 256, 512])
def test_varying_sizes_are_a_dozen_different_multiples_of_four(size: int) -> None:
    sizes = gather.shape_sizes(size)
    assert len(set(sizes)) == 12
    assert all(s % 4 == 0 and s >= 16 for s in sizes)


def test_letters_are_checked_and_ordered() -> None:
    assert script.letters("d, a") == ("a", "d")
    with pytest.raises(argparse.ArgumentTypeError, match="'z'"):
        script.letters("a,z")


@pytest.mark.parametrize("model", ["convnet_v0", "single_conv"])
def test_the_naive_loop_runs_in_a_process_of_its_own(model: str) -> None:
    readings = child("naive", "--model", model, "--benchmark", "on", "--batch", "1", "--size", "16", "--steps", "2")
    parsed = from_json(NaiveLoop, {"model": model, "mode": "train", "benchmark": True, "steps": 2} | readings, "")
    assert min(parsed.cold_ns, parsed.warm_ns, parsed.true_ns, parsed.flipped_ns) > 0
    assert [p.phase for p in parsed.early] == ["forward", "loss", "backward", "optimizer"]
    whole_ns = sum(p.stopwatch_ns or 0 for p in parsed.late)
    assert 0 < whole_ns < 100 * parsed.true_ns


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


def test_a_loop_that_fails_is_a_problem_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(command: list[str], **_: object) -> object:
        raise subprocess.CalledProcessError(1, command, stderr="Traceback\nRuntimeError: out of memory\n")

    monkeypatch.setattr(subprocess, "run", failing)
    figures = gather.gather(gather.Options(claims=("i",)), say=lambda _: None)
    assert figures.naive == ()
    assert len(figures.problems) == 2
    assert all("out of memory" in problem for problem in figures.problems)

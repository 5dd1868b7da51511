"""Every claim of the case study judged on made-up figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts_made_up import MS, again, count, cuda, naive, phases, run

from profiler_kit.records.runs import PhaseTiming
from scripts.case_study import judges_flags, judges_where
from scripts.case_study.figures import Figures, RunFigures, ShapeLoop
from scripts.case_study.judgement import Verdict
from scripts.case_study.pairs import Pair, noise_of, pairs

ROOT = Path(__file__).resolve().parents[2]


# --- a: the loss ---------------------------------------------------------------------------------------------------


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


# --- b: operations -------------------------------------------------------------------------------------------------


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


# --- c: memory -----------------------------------------------------------------------------------------------------


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


# --- pairs ---------------------------------------------------------------------------------------------------------


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


# --- d, g, h: flags ------------------------------------------------------------------------------------------------


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


# --- e: shapes -----------------------------------------------------------------------------------------------------


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


# --- f: bits -------------------------------------------------------------------------------------------------------


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


# --- i: the naive loop ---------------------------------------------------------------------------------------------


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

"""Tests of the claims of the case study on sample figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_figures import MS, count, cuda, naive, phases, repeat_of, run

from profiler_kit.records.traces import PhaseTime
from scripts.case_study import cost_verdicts, flag_verdicts
from scripts.case_study.figures import Figures, RunFigures, ShapeLoop
from scripts.case_study.judgment import Verdict
from scripts.case_study.pairs import Pair, make_pairs, model_noise

pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]


# --- a: the loss ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stopwatch", "kernel", "verdict"),
    [(900, 1, "False"), (900, 900, "True"), (900, 60, "Partly")],
)
def test_the_loss_is_judgment_by_device_time_not_by_the_stopwatch(
    stopwatch: int, kernel: int, verdict: Verdict
) -> None:
    timings = phases(forward=(50, 40), loss=(stopwatch, kernel), backward=(50, 60))
    judgment = cost_verdicts.judge_loss(cuda(runs=(run("v0", "default", phases=timings),)))
    assert judgment.verdict == verdict
    assert judgment.table is not None
    ((_, _, by_stopwatch, _, by_kernel, *_),) = judgment.table.rows
    assert by_stopwatch == pytest.approx(90.0)
    assert by_kernel == pytest.approx(100 * kernel / (kernel + 100))


def test_the_loss_is_not_judgment_without_kernel_time() -> None:
    unread = (PhaseTime(phase="loss", stopwatch_ns=5), PhaseTime(phase="forward", stopwatch_ns=5))
    assert cost_verdicts.judge_loss(cuda(runs=(run("v0", "default", phases=unread),))).verdict == "Not measured"


def test_on_a_cpu_the_loss_claim_is_false_and_the_sentences_name_the_cpu() -> None:
    timings = phases(forward=(50, 50), loss=(1, 1), backward=(50, 50))
    judgment = cost_verdicts.judge_loss(Figures(runs=(run("v0", "default", phases=timings),)))
    assert judgment.verdict == "False"
    assert any("CPU" in sentence for sentence in judgment.sentences)


# --- b: operations -------------------------------------------------------------------------------------------------


def test_operations_are_false_when_no_size_matches_both_numbers() -> None:
    counts = [count("v0", s, 386_461 * s * s) for s in (32, 40, 256)] + [
        count("v1", s, 116_261 * s * s) for s in (32, 40, 256)
    ]
    judgment = cost_verdicts.judge_operations(Figures(counts=tuple(counts)))
    assert judgment.verdict == "False"
    assert judgment.table is not None
    assert [row[0] for row in judgment.table.rows] == [32, 40, 256]


@pytest.mark.parametrize("factor", [1, 2])
def test_operations_are_true_when_a_size_matches_both_as_macs_or_as_flops(factor: int) -> None:
    counts = (
        count("v0", 40, 8 * 630_000_000 // factor, batch=8),
        count("v1", 40, 270_000_000 // factor),
        count("v0", 44, 1),
        count("v1", 44, 1),
    )
    assert cost_verdicts.judge_operations(Figures(counts=counts)).verdict == "True"


def test_one_matching_number_is_not_enough() -> None:
    counts = (count("v0", 40, 630_000_000), count("v1", 40, 190_000_000))
    assert cost_verdicts.judge_operations(Figures(counts=counts)).verdict == "False"


# --- c: memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "peaks", "verdict"),
    [
        ((179, 66), (433, 1508), "Partly"),  # saves more, peaks lower: workspace
        ((179, 66), (600, 500), "False"),
        ((60, 66), (433, 500), "True"),
        ((60, 66), (600, 500), "Partly"),
    ],
)
def test_memory_compares_saved_bytes_and_peaks(
    saved: tuple[int, int], peaks: tuple[int, int], verdict: Verdict
) -> None:
    runs = (
        run("v0", "no-tf32", peak_allocated_bytes=peaks[0], workspace_bytes=0),
        run("v1", "no-tf32", peak_allocated_bytes=peaks[1], workspace_bytes=1212, workspace_path="conv_r1"),
    )
    counts = (count("v0", 256, 1, saved=saved[0]), count("v1", 256, 1, saved=saved[1]))
    judgment = cost_verdicts.judge_memory(cuda(runs=runs, counts=counts))
    assert judgment.verdict == verdict
    names_workspace = any("conv_r1" in sentence for sentence in judgment.sentences)
    assert names_workspace == (peaks[0] < peaks[1])


def test_memory_needs_cuda_for_peaks_but_reports_saved_bytes() -> None:
    judgment = cost_verdicts.judge_memory(Figures(size=64, counts=(count("v0", 64, 1), count("v1", 64, 1))))
    assert judgment.verdict == "Needs CUDA"
    assert judgment.sentences


# --- pairs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_ms", "again_ms", "faster", "slower"),
    [(8.0, 10.1, True, False), (8.0, 12.5, False, False), (10.05, 10.0, False, False), (13.0, 10.1, False, True)],
)
def test_a_difference_counts_if_it_exceeds_the_noise_between_processes(
    after_ms: float, again_ms: float, faster: bool, slower: bool
) -> None:
    pair = pair_of(run("v0", "default"), run("v0", "benchmark", after_ms), again_ms)
    assert (pair.faster, pair.slower) == (faster, slower)


def test_further_processes_of_a_configuration_count() -> None:
    before, after = run("v0", "default"), run("v0", "benchmark", 9.0)
    assert pair_of(before, after, 10.0).faster
    assert not pair_of(before, replace(after, repeats=(run("v0", "benchmark", 11.0).step_ns,)), 10.0).faster


def pair_of(before: RunFigures, after: RunFigures, again_ms: float) -> Pair:
    (pair,) = make_pairs(cuda(runs=(before, after, repeat_of(before, again_ms))), [("default", after.config)])
    return pair


@pytest.mark.parametrize(
    ("after_ms", "tuning_ms", "steps"),
    [(8.0, 100.0, 50), (8.0, 101.0, 51), (9.9, 100.0, None), (12.0, 100.0, None), (8.0, -5.0, 0)],
)
def test_break_even_is_tuning_over_the_saving_per_step(after_ms: float, tuning_ms: float, steps: int | None) -> None:
    after = run("v0", "benchmark", after_ms, tuning_ns=round(tuning_ms * MS))
    assert pair_of(run("v0", "default"), after, 10.0).break_even_steps(0.02) == steps


def test_noise_is_the_gap_between_two_processes_of_one_configuration() -> None:
    first = run("v0", "default", 10.0)
    figures = cuda(runs=(first, repeat_of(first, 10.3), run("v1", "default")))
    assert model_noise(figures, "v0").gap == pytest.approx(0.03)
    assert model_noise(figures, "v1").gap is None


def test_a_failed_run_makes_no_pair() -> None:
    failed = RunFigures(model="v0", config="benchmark", failure="out_of_memory: no")
    assert make_pairs(cuda(runs=(run("v0", "default"), failed)), [("default", "benchmark")]) == []


# --- d, g, h: flags ------------------------------------------------------------------------------------------------


def speeds(config: str, v0_ms: float, mnist_ms: float, **fields: Any) -> Figures:
    runs = (
        run("v0", "default"),
        run("v0", config, v0_ms, tuning_ns=1000 * MS, **fields),
        run("mnist", "default"),
        run("mnist", config, mnist_ms, tuning_ns=1000 * MS, **fields),
    )
    return cuda(runs=runs)


@pytest.mark.parametrize(
    ("v0_ms", "mnist_ms", "verdict"),
    [(6.0, 8.0, "True"), (6.0, 9.7, "Partly"), (10.0, 9.7, "False"), (12.0, 14.0, "False")],
)
def test_benchmark_is_much_faster_from_a_tenth_upwards(v0_ms: float, mnist_ms: float, verdict: Verdict) -> None:
    judgment = flag_verdicts.judge_benchmark(speeds("benchmark", v0_ms, mnist_ms))
    assert judgment.verdict == verdict
    assert judgment.table is not None
    break_even = [row[-1] for row in judgment.table.rows]
    assert break_even[0] == (250 if v0_ms == 6.0 else "never")


@pytest.mark.parametrize(
    ("v0_ms", "mnist_ms", "verdict"), [(12.0, 11.0, "True"), (12.0, 10.0, "Partly"), (10.1, 9.0, "False")]
)
def test_determinism_is_slower_from_two_percent_upwards(v0_ms: float, mnist_ms: float, verdict: Verdict) -> None:
    assert flag_verdicts.judge_deterministic(speeds("deterministic", v0_ms, mnist_ms)).verdict == verdict


@pytest.mark.parametrize(("family", "verdict"), [("conv:im2col(aten)", "True"), ("conv:xmma_igemm", "False")])
def test_fallback_is_judged_by_the_kernels(family: str, verdict: Verdict) -> None:
    judgment = flag_verdicts.judge_fallback(speeds("cudnn-off", 30.0, 30.0, dominant_family=family))
    assert judgment.verdict == verdict
    assert judgment.table is not None
    assert [row[6] for row in judgment.table.rows] == [3.0, 3.0]


# --- e: shapes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "verdict"),
    [((4366, 29, 20), "Partly"), ((4366, 34, 33), "True"), ((495, 29, 20), "False")],
)
def test_shapes_distinguish_new_from_repeated_shapes(on: tuple[int, ...], verdict: Verdict) -> None:
    off = ShapeLoop(benchmark=False, batch=2, sizes=(128, 144), cycles_ns=(490, 33, 31), tail_ns=26)
    judgment = flag_verdicts.judge_shapes(cuda(shapes=(off, replace(off, benchmark=True, cycles_ns=on, tail_ns=303))))
    assert judgment.verdict == verdict
    if verdict == "Partly":
        assert any("353" in sentence for sentence in judgment.sentences)  # (4366 - 490) / (31 - 20), rounded up


# --- f: reproducibility ----------------------------------------------------------------------------------------------


def digests(config: str, process: int, digest: str, *, outputs: bool = True, gradients: bool = True) -> RunFigures:
    return run(
        "v0", config, process=process, repeatable_outputs=outputs, repeatable_gradients=gradients,
        output_digest=digest, gradient_digest=digest,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        (
            (
                digests("default", 1, "a"),
                digests("default", 2, "a"),
                digests("benchmark", 1, "b"),
                digests("benchmark", 2, "c"),
            ),
            "True",
        ),
        (
            (
                digests("default", 1, "a"),
                digests("default", 2, "a"),
                digests("benchmark", 1, "b"),
                digests("benchmark", 2, "b"),
            ),
            "False",
        ),
        ((digests("default", 1, "a"), digests("benchmark", 1, "b", outputs=False)), "Partly"),
        (
            # neither is reproducible: benchmark is not the cause, so there is no result to judge
            (
                digests("default", 1, "a"),
                digests("default", 2, "b"),
                digests("benchmark", 1, "b"),
                digests("benchmark", 2, "c"),
            ),
            "Not measured",
        ),
    ],
)
def test_reproducibility_judges_the_effect_of_benchmark(runs: tuple[RunFigures, ...], verdict: Verdict) -> None:
    assert flag_verdicts.judge_reproducibility(cuda(runs=runs)).verdict == verdict


def test_a_repeated_default_counts_as_a_process() -> None:
    first = digests("default", 1, "a")
    repeated = replace(digests("default", 1, "z"), config="default (again)", repeat_of="default")
    judgment = flag_verdicts.judge_reproducibility(cuda(runs=(first, repeated, digests("benchmark", 1, "b"))))
    assert judgment.table is not None
    assert judgment.table.rows[0][:5] == ("v0", "default", 2, True, False)


# --- i: the naive loop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cold", "warm", "verdict"), [(900, 15, "True"), (900, 100, "Partly"), (105, 95, "False")])
def test_a_naive_loop_is_compared_with_the_true_step(cold: int, warm: int, verdict: Verdict) -> None:
    judgment = cost_verdicts.judge_naive(cuda(naive=(naive(False, cold, warm, 100), naive(True, cold, warm, 100))))
    assert judgment.verdict == verdict
    assert any("convnet_v0" in sentence for sentence in judgment.sentences)


def test_the_naive_loop_on_a_cpu_is_never_fully_true() -> None:
    assert cost_verdicts.judge_naive(Figures(naive=(naive(False, 900, 15, 100),))).verdict == "Partly"
    assert cost_verdicts.judge_naive(Figures(naive=(naive(False, 101, 99, 100),))).verdict == "Needs CUDA"

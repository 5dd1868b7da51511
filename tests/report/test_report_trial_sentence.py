"""What came of an advice that was tried, in words."""

from __future__ import annotations

from dataclasses import replace

from profiler_kit.records.report import Trial
from profiler_kit.records.samples import Interval
from profiler_kit.report.verdict import trial_sentence

BEFORE = Interval(median=20_000_000, low=19_900_000, high=20_100_000)
AFTER = Interval(median=15_000_000, low=14_900_000, high=15_100_000)
SWEPT = Trial(config="benchmark", before_ns=BEFORE, after_ns=AFTER, verdict="better", note="Beside default.")
TRIED = replace(
    SWEPT,
    tried=True,
    gain_percent=25.0,
    gain_low_percent=24.0,
    gain_high_percent=26.0,
    stated_percent=24.5,
    stated_low_percent=23.5,
    stated_high_percent=25.5,
    before_peak_bytes=2**30,
    after_peak_bytes=2**29,
    before_error=5e-4,
    after_error=5e-4,
    same_bits=False,
)


def test_a_run_of_the_sweep_is_told_in_a_line() -> None:
    assert trial_sentence(SWEPT, with_note=False) == "20 ms -> 15 ms, better."
    assert trial_sentence(SWEPT) == "20 ms -> 15 ms, better. Beside default."


def test_what_was_tried_has_its_interval_and_what_else_it_changed() -> None:
    sentence = trial_sentence(TRIED, with_note=False)
    assert sentence.startswith("20 ms -> 15 ms, 25.0 % less time (24.0 to 26.0 %), ")
    assert "24.5 % (23.5 to 25.5 %), better, peak 1 GiB -> 512 MiB, same error" in sentence
    assert "not bitwise equal" in sentence


def test_a_loss_of_time_reads_as_one() -> None:
    worse = replace(
        TRIED, verdict="worse", gain_percent=-10.0, gain_low_percent=-12.0, gain_high_percent=-8.0, stated_percent=None
    )
    assert "10.0 % more time (8.0 to 12.0 %), worse" in trial_sentence(worse)


def test_what_was_stated_and_did_not_come_true_is_said() -> None:
    refuted = replace(TRIED, stated_percent=40.0, stated_low_percent=38.0, stated_high_percent=42.0)
    assert "40.0 % (38.0 to 42.0 %) and not confirmed" in trial_sentence(refuted)
    assert "not confirmed" not in trial_sentence(TRIED)


def test_steps_of_different_batches_are_compared_by_example() -> None:
    assert "25.0 % less time per example (24.0 to 26.0 %)" in trial_sentence(replace(TRIED, per_example=True))


def test_a_failure_is_all_there_is_to_say() -> None:
    failed = replace(TRIED, verdict="failed", note="out of memory")
    assert trial_sentence(failed) == "failed: out of memory."

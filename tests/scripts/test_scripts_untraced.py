"""The errors of the step without the profiler, on the recorded programs whose step was also timed."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from profiler_kit.simulation.profiler_cost import ON_HOST
from scripts.bench.untraced_step import Case, by_program, fixed, row, scaled, timed_programs, timed_traces, usual

pytestmark = pytest.mark.jobs

MEDIAN, NINE_OF_TEN = 0.08, 0.25  # of the step without the profiler
MIN_PROGRAMS = 4  # of which a median says something


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*timed_traces(), *timed_programs()]


@pytest.mark.parametrize("on_device", [True, False])
def test_the_errors_are_within_the_targets(cases: list[Case], on_device: bool) -> None:
    part = [case for case in cases if case.on_device == on_device]
    rows = [row(case, part) for case in part]
    errors = {
        name: [statistics.median(errors) for errors in by_program(rows, name)]
        for name in ("traced", "estimate", "fixed")
    }
    if (
        len(errors["estimate"]) >= MIN_PROGRAMS
    ):  # two of the four device programs are traces that not every checkout has
        assert statistics.median(errors["estimate"]) < MEDIAN
    assert np.quantile(errors["estimate"], 0.9) < NINE_OF_TEN
    for worse in ("traced", "fixed"):
        assert statistics.fmean(errors["estimate"]) < statistics.fmean(errors[worse])


def test_programs_on_the_cpu_lose_the_cost_of_their_events() -> None:
    (case,) = (case for case in timed_programs() if (case.program, case.form) == ("recurrent_loop", "plain"))
    step_ns = [case.interval(transform).median for transform in (scaled(0), usual, fixed)]
    assert step_ns[0] == case.traced_ns
    assert (step_ns[0] - step_ns[1]) / ON_HOST.operator_ns == pytest.approx(5164 + 3, abs=1)
    assert step_ns[2] < step_ns[1]

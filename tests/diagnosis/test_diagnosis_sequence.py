"""The step after one repair, after two, and so on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_diagnosis_ranking import finding, trace

from profiler_kit.diagnosis.recorded import without_profiler
from profiler_kit.diagnosis.verdict import step_sequence
from profiler_kit.records.report import Finding
from profiler_kit.records.samples import Interval
from profiler_kit.records.traces import HostActivity, IdleTime, Saving
from profiler_kit.records.verdict import StepAfter, Verdict
from profiler_kit.report.verdict import sequence_sentence, share_sentence


def saving(rule: str, alone: float, share: float) -> Finding:
    return replace(finding(rule, 0.5, "busy"), saving=Saving(median=alone, low=alone, high=alone), share=share)


def test_each_repair_shortens_the_step_by_what_it_adds() -> None:
    findings = [saving("a", 0.4, 0.4), saving("b", 0.3, 0.02), finding("c", 0.9, "busy"), saving("d", 0.0, 0.35)]
    assert step_sequence(findings, 1000) == (StepAfter(finding=1, step_ns=600), StepAfter(finding=4, step_ns=250))


def test_a_sequence_of_one_repair_is_not_told_again() -> None:
    one = Verdict(sentences=(), step_ns=1_000_000, sequence=(StepAfter(finding=1, step_ns=600_000),))
    assert sequence_sentence(one) == ""
    two = replace(one, sequence=(*one.sequence, StepAfter(finding=3, step_ns=250_000)), device_work_ns=200_000)
    assert sequence_sentence(two) == (
        "A step, one repair after the other: 1 ms now, about 600 us without [1], about 250 us without [1] and [3]. "
        "The device's work alone takes 200 us."
    )


def test_what_saves_only_after_another_repair_says_so() -> None:
    assert "35.0 % once those above are repaired" in share_sentence(saving("d", 0.0, 0.35))
    assert "once those above" not in share_sentence(saving("d", 0.34, 0.35))


def test_the_profilers_time_is_taken_out_of_what_the_host_causes() -> None:
    waits = (IdleTime(cause="waiting for data", ns=300, gaps=1), IdleTime(cause="python", ns=100, gaps=1))
    activity = HostActivity(name="f", phase="", source="", calls=1, ns=80, longest_ns=80)
    traced = replace(
        trace(),
        idle=waits,
        step_ns=1000,
        activities=(activity,),
        untraced_step_ns=Interval(median=950, low=900, high=1000),
    )
    untraced = without_profiler(traced)
    assert [(part.cause, part.ns) for part in untraced.idle] == [("waiting for data", 300), ("python", 50)]
    assert (untraced.span_ns, untraced.idle_ns, untraced.busy_ns) == (950, 350, 600)
    assert untraced.activities[0].ns == 40
    assert (
        without_profiler(replace(traced, untraced_step_ns=Interval(median=1100, low=1000, high=1200))).span_ns == 1000
    )
    little = without_profiler(replace(traced, untraced_step_ns=Interval(median=100, low=90, high=110)))
    assert [part.ns for part in little.idle] == [300, 0], "the wait for data is not the profiler's"


@pytest.mark.parametrize("ns", [1, 7, 33, 100])
def test_idle_time_without_the_profiler_sums_exactly(ns: int) -> None:
    parts = tuple(
        IdleTime(cause=cause, ns=33 + i, gaps=1) for i, cause in enumerate(("python", "op dispatch", "launch latency"))
    )
    traced = replace(
        trace(),
        idle=parts,
        idle_ns=102,
        span_ns=702,
        step_ns=702,
        untraced_step_ns=Interval(median=702 - ns, low=1, high=702),
    )
    untraced = without_profiler(traced)
    assert sum(part.ns for part in untraced.idle) == untraced.idle_ns == 102 - ns

"""Findings on the ranks of a report: late ranks beside the profiler's slowdown, buckets of gradients, failures of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_laws import sound_finding
from sample_reports import failed, v0_cuda
from trace_reports import ms, two_ranks

from profiler_kit.diagnosis import diagnose
from profiler_kit.records.parallel import ParallelPlan, RankRun
from profiler_kit.records.ranks import Ranks, StepCollective, Straggler
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import Failure
from profiler_kit.records.samples import Interval

MIB = 1 << 20


def report_on(ranks: Ranks, strategy: str = "ddp", step_ms: float = 27.0) -> Report:
    """A report of two ranks whose traced step takes 31 ms."""
    report = v0_cuda()
    plan = ParallelPlan(strategy=strategy, ranks=2)  # type: ignore[arg-type]
    step = Interval(median=ms(step_ms), low=ms(step_ms), high=ms(step_ms))
    runs = tuple(replace(run, step_ns=step) if run.failure is None else run for run in report.runs)
    return replace(
        report,
        target=replace(report.target, parallel=plan),
        runs=runs,
        ranks=replace(two_ranks(), ranks=ranks),
    )


def ranks_of(*, late_ms: float = 6.5, doing: str = "backward", exposed_ms: float = 0.5, buckets: int = 12) -> Ranks:
    """Two ranks with one late rank, and buckets of gradients of 25 MiB."""
    ranks = two_ranks().ranks
    assert ranks is not None
    late = Straggler(
        rank=1,
        last=9,
        collectives=10,
        late_ns=ms(late_ms),
        cost_ns=ms(late_ms),
        doing=doing,
        doing_excess_ns=ms(late_ms),
    )
    return replace(
        ranks,
        ranks=tuple(replace(rank, exposed_ns=ms(exposed_ms), wait_ns=0) for rank in ranks.ranks),
        stragglers=(late,) if late_ms else (),
        collectives=tuple(
            StepCollective(
                number=number, kind="all_reduce", group="[0, 1]", bytes=25 * MIB, start_ns=ms(number),
                duration_ns=ms(1), exposed_ns=ms(exposed_ms / buckets), wait_ns=0,
            )
            for number in range(1, buckets + 1)
        ),
    )  # fmt: skip


def found(report: Report, rule: str) -> list[Finding]:
    findings = [finding for finding in diagnose(report) if finding.rule == rule]
    for finding in findings:
        sound_finding(finding)
    return findings


def test_a_rank_with_more_work_is_late_with_and_without_the_profiler() -> None:
    (late,) = found(report_on(ranks_of()), "stragglers")
    assert late.severity == "high"
    assert "in the report's folder" in late.advice


@pytest.mark.parametrize(
    ("late_ms", "step_ms", "is_named"),
    [(6.5, 27.0, True), (3.5, 27.0, False), (6.5, 15.0, False)],
    ids=["later than the profiler adds", "the profiler adds 4 ms", "the profiler adds 16 ms"],
)
def test_a_host_that_the_profiler_slows_makes_no_straggler(late_ms: float, step_ms: float, is_named: bool) -> None:
    report = report_on(ranks_of(late_ms=late_ms, doing="op dispatch (idle)"), step_ms=step_ms)
    findings = found(report, "stragglers")
    assert bool(findings) == is_named
    for finding in findings:
        assert finding.severity == "medium"
        assert "The profiler slows hosts too" in finding.explanation
    assert found(report_on(ranks_of(late_ms=late_ms), step_ms=step_ms), "stragglers"), "work is not the profiler's"


@pytest.mark.parametrize(("exposed_ms", "severity"), [(1.5, None), (1.6, "low"), (3.2, "medium")])
def test_exposed_gradients_get_other_buckets_to_try(exposed_ms: float, severity: str | None) -> None:
    findings = found(report_on(ranks_of(late_ms=0, exposed_ms=exposed_ms)), "gradient_buckets")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    for finding in findings:
        assert finding.tries == ("bucket_mb=100", "bucket_mb=6")
        assert "bucket_cap_mb=100" in finding.advice
        assert "12 all-reduces, 300 MiB" in finding.title


def test_buckets_are_an_option_of_ddp_alone_and_of_gradients_that_need_several() -> None:
    assert not found(report_on(ranks_of(late_ms=0, exposed_ms=8), "fsdp2"), "gradient_buckets")
    ranks = ranks_of(late_ms=0, exposed_ms=8, buckets=1)
    small = replace(ranks, collectives=tuple(replace(row, bytes=MIB) for row in ranks.collectives))
    assert not found(report_on(small), "gradient_buckets"), "any bucket holds them"


def test_a_single_device_has_no_findings_on_ranks() -> None:
    assert not {"stragglers", "gradient_buckets"} & {finding.rule for finding in diagnose(v0_cuda())}


def test_the_peak_of_a_rank_is_not_held_against_the_prediction_for_one_device() -> None:
    report = v0_cuda()
    grown = replace(
        report,
        runs=tuple(replace(run, peak_allocated_bytes=(run.peak_allocated_bytes or 0) * 3) for run in report.runs),
    )
    plan = ParallelPlan(strategy="ddp", ranks=2)
    ranked = replace(grown, target=replace(grown.target, parallel=plan))
    assert not found(ranked, "memory_prediction")


def test_parameters_that_ddp_misses_get_the_option_that_finds_them() -> None:
    report = failed()
    failure = Failure(kind="error", message="RuntimeError: no", code="unused_parameters")
    runs = tuple(replace(run, failure=failure) for run in report.runs)
    (finding,) = found(replace(report, runs=runs), "failed_runs")
    assert "--configs find_unused" in finding.advice


def test_rank_rows_have_the_predicted_peak() -> None:
    from profiler_kit.report.tables import rank_run_rows

    report = report_on(ranks_of())
    run = report.baseline()
    assert run is not None
    assert rank_run_rows(report, run) == []
    ranked = replace(run, ranks=(RankRun(rank=0, host="node0", device_name="H100", step_ns=run.step_ns),))
    (row,) = rank_run_rows(report, ranked)
    assert (row.config, row.predicted_bytes) == ("default", None)

"""A page shows one busy share, and its verdict, its main cause and its first remedy do not contradict each other."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_kit.comparison.traces import compare_traces
from profiler_kit.diagnosis import diagnose, verdict
from profiler_kit.diagnosis.recorded import readable_traces, without_profiler
from profiler_kit.diagnosis.step_work import idle_steps, step_works
from profiler_kit.diagnosis.timing import busy_share
from profiler_kit.pipeline.inspect import inspect
from profiler_kit.records.report import Finding, Report, TraceReport
from profiler_kit.records.serde import loads_report
from profiler_kit.records.verdict import Bound, Verdict
from profiler_kit.report import sentences
from profiler_kit.report.charts.traces import step_chart, time_chart
from profiler_kit.report.columns.traces import TRACE_COLUMNS, TraceItem
from profiler_kit.report.trace_tables import idle_lines

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "diagnosis"
REPORTS = (ROOT / "docs" / "measured" / "trainer_lightning_cpu.json", *sorted(FIXTURES.glob("*.cpu.analyze.json.gz")))
# Small traces of each kind of cause, on both clocks.
TRACES = tuple(
    FIXTURES / f"{name}.plain.json.gz"
    for name in (
        *(
            "adam_on_a_large_table.cpu",
            "attention_by_hand.cpu",
            "beam_in_python.cpu",
            "digits_vae.cpu",
            "loader_without_workers.cpu",
        ),
        *(
            "clickstream.cpu",
            "double_precision.cuda",
            "first_steps.cuda",
            "float32_matmul.cuda",
            "item_every_step.cuda",
        ),
        *(
            "loader_too_few_workers.cuda",
            "matmul_well_used.cuda",
            "metrics_to_the_host.cuda",
            "pointwise_activation.cuda",
        ),
    )
)
# By code, not by words: the pools of claims that explain each bound.
IDLE: tuple[Bound, ...] = (
    "launches", "python", "synchronization", "cold start", "compilation", "memory allocation", "other devices", "unknown",
)  # fmt: skip
POOLS: dict[Bound, set[str]] = {
    **{bound: {"busy"} for bound in ("compute", "memory bandwidth", "copies", "kernels", "operators")},
    **{bound: {"busy", "idle", "host"} for bound in ("overhead", "data", "communication")},
    **{bound: {"idle", "host"} for bound in IDLE},
}


def load(path: Path) -> Report:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    result = loads_report(text, str(path))
    assert isinstance(result, Report)
    return replace(result, findings=diagnose(result), verdict=None)


def shares_in(text: str) -> Iterator[float]:
    """The busy shares that sentences state."""
    for share in re.findall(r"(?:[Oo]perators take|[Oo]perators busy|is busy) (\d+(?:\.\d+)?) %", text):
        yield float(share) / 100


def agrees(result: Report | TraceReport, answer: Verdict) -> None:
    """Assert that the parts of the verdict fit together."""
    assert (answer.busy is None) == (answer.bound is None)
    if answer.bound is None:
        return
    assert answer.busy is not None
    assert answer.idle is not None
    assert answer.busy + answer.idle == pytest.approx(1.0)
    assert 0.0 <= answer.busy <= 1.0
    if answer.cause is None:
        assert answer.cause_is_bound is None
        return
    cause: Finding = result.findings[answer.cause - 1]
    pools = {claim.pool for claim in cause.claims}
    if not pools & POOLS[answer.bound]:
        assert answer.cause_is_bound is False
    if answer.cause_is_bound:
        assert pools & POOLS[answer.bound]
    for remedy in answer.remedies:
        assert all(0 < number <= len(result.findings) for number in remedy.findings)


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name.partition(".")[0])
def test_a_report_of_a_cpu_shows_one_busy_share(path: Path) -> None:
    report = load(path)
    run, answer = report.baseline(), verdict(report)
    assert run is not None
    assert run.clock == "operator"
    agrees(report, answer)
    share, work = run.busy_share, next(step_works(report))
    assert share is not None
    assert work is not None
    assert 0.0 < share <= 1.0
    assert answer.busy == pytest.approx(share)
    assert busy_share(report) == share
    assert work.busy_ns / work.span_ns == pytest.approx(share, rel=1e-6)
    if run.traced is not None:
        _, total = idle_lines(run.idle)
        assert total.ns / (run.span_ns or 1) == pytest.approx(1.0 - share)
    page = " ".join((*answer.sentences, sentences.idle(run) or ""))
    assert [stated for stated in shares_in(page) if abs(stated - share) > 0.0005001] == []


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".json")[0])
def test_a_trace_shows_one_busy_share_and_one_cause(path: Path) -> None:
    report = inspect(path).report
    (trace,), answer = report.traces, report.verdict
    assert answer is not None
    agrees(report, answer)
    share = trace.busy_share
    assert share is not None
    assert trace.busy_ns + trace.idle_ns == trace.span_ns
    untraced = without_profiler(trace).busy_share
    assert untraced is not None
    assert untraced >= share
    assert answer.busy == pytest.approx(untraced)
    (column,) = [column for column in TRACE_COLUMNS if column.key == "busy_percent"]
    assert column.value(TraceItem(trace, None)) == pytest.approx(100 * share)
    readable = readable_traces(report)
    assert [work.busy_ns / work.span_ns for work in step_works(readable)] == pytest.approx([untraced])
    assert [step.busy_share for step in idle_steps(readable)] == pytest.approx([untraced])
    compared = compare_traces(trace, trace)
    assert (compared.busy.a_ns, compared.span.a_ns) == (trace.busy_ns, trace.span_ns)
    for chart in time_chart(trace):
        values = {part["name"]: part["values"][0] for part in chart.data["parts"]}
        assert sum(values.values()) == trace.span_ns
    for chart in step_chart(trace):
        busy, idle = (part["values"] for part in chart.data["parts"])
        assert [a + b for a, b in zip(busy, idle, strict=True)] == [
            step.device_ns if step.device_ns is not None else step.host_ns
            for step in trace.steps
            if step.idle_ns is not None
        ]
    page = " ".join(answer.sentences)
    assert [stated for stated in shares_in(page) if abs(stated - untraced) > 0.0005001] == []

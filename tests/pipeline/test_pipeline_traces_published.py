"""What is said of traces that other people published, where they are there: the first thing a reader should know of each."""

from __future__ import annotations

import pytest
from published_traces import PUBLISHED, published
from trace_reports import traces

from profiler_kit.diagnosis import diagnose_traces
from profiler_kit.diagnosis.recorded import without_profiler
from profiler_kit.errors import TraceError
from profiler_kit.pipeline.trace_files import trace_files
from profiler_kit.pipeline.trace_reading import summary
from profiler_kit.records.report import Finding
from profiler_kit.records.traces import TraceSummary

pytestmark = published


def said(name: str) -> tuple[TraceSummary, list[Finding]]:
    (file,) = trace_files([PUBLISHED / name]).files
    trace = summary(file)
    return trace, list(diagnose_traces(traces(trace)))


def test_the_case_study_is_one_convolution_and_not_the_loss() -> None:
    trace, findings = said("h100/convnet_v0.json.gz")
    assert findings[0].rule == "dominant_layer"
    reading = next(finding for finding in findings if not finding.claims)
    assert findings[0].title.endswith("a 16x16 convolution of 30 to 50 channels at 257x257")
    assert findings[0].evidence[0].value > 90, "percent of the device time"
    assert trace.span_ns == pytest.approx(89.15e6, rel=1e-3)
    span_ns = without_profiler(trace).span_ns
    assert findings[0].weight == pytest.approx(79.93e6 / span_ns, rel=1e-3), (
        "the share of the step, which has idle time"
    )
    assert (reading.rule, reading.evidence[0].name) == ("wrong_phase", "loss by host time")
    loss = trace.phase("loss")
    assert loss is not None
    assert loss.kernel_ns < 0.01 * trace.busy_ns


def test_a_loader_in_the_training_process_starves_the_device_and_workers_feed_it() -> None:
    starved, findings = said("kineto/resnet50_num_workers_0")
    assert [finding.rule for finding in findings if finding.severity in ("high", "medium")] == ["data_bound"]
    assert findings[0].rule == "data_bound"
    assert "num_workers" in findings[0].advice
    fed, others = said("kineto/resnet50_num_workers_4")
    assert "data_bound" not in [finding.rule for finding in others]
    waited = [sum(i.ns for i in one.idle if i.cause == "waiting for data") for one in (starved, fed)]
    assert 280_000_000 <= waited[0] - waited[1] <= 288_000_000


def test_a_full_launch_queue_is_no_fault() -> None:
    trace, findings = said("hta/ns_resolution_resnet_ddp_v100.json.gz")
    assert trace.queue is not None
    assert trace.queue.full
    assert "wrong_phase" not in [finding.rule for finding in findings]


def test_what_is_no_trace_is_said_in_a_sentence() -> None:
    with pytest.raises(TraceError, match="raw memory timeline"):
        summary(PUBLISHED / "hta" / "memory_timeline.raw.json.gz")

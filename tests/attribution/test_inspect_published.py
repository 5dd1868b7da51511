"""Real traces of other people's machines, asked as a user asks: every one is answered, with the figures worked out beside it.

What is found in them piece by piece is held to the same truth beside each piece.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from published_traces import FILES, PUBLISHED, TRACES, TRUTH, published

import profiler_kit
from profiler_kit.errors import TraceError
from profiler_kit.records.traces import TraceSummary

pytestmark = published

NO_TRACES = [name for name in FILES if name not in TRACES]
V100 = "hta/ns_resolution_resnet_ddp_v100.json.gz"
# Its times are ns since 1970, of which a float knows every 256th: its span was worked out in floats.
FLOATS = {V100: 256}


@cache
def inspected(name: str) -> TraceSummary:
    (summary,) = profiler_kit.inspect(PUBLISHED / name).traces
    return summary


@pytest.mark.parametrize("name", TRACES)
def test_every_trace_gives_a_report_whose_parts_are_the_whole(name: str) -> None:
    summary = inspected(name)
    assert summary.events > 0
    assert summary.busy_ns + summary.idle_ns == summary.span_ns
    assert sum(phase.kernel_ns for phase in summary.phases) + summary.unattributed_ns == summary.busy_ns
    assert sum(idle.ns for idle in summary.idle) == summary.idle_ns


@pytest.mark.parametrize("name", NO_TRACES)
def test_a_file_that_is_no_trace_gives_a_sentence(name: str) -> None:
    with pytest.raises(TraceError) as raised:
        profiler_kit.inspect(PUBLISHED / name)
    assert raised.value.message
    assert "\n" not in raised.value.message


def test_all_files_at_once_give_the_same_and_name_what_is_none() -> None:
    result = profiler_kit.inspect([PUBLISHED / name for name in FILES])
    assert [path.relative_to(PUBLISHED).as_posix() for path in result.files] == TRACES
    assert [Path(error.where or "").name for error in result.errors] == [Path(name).name for name in NO_TRACES]
    for name, summary in zip(TRACES, result.traces, strict=True):
        alone = inspected(name)
        assert (summary.events, summary.span_ns, summary.phases) == (alone.events, alone.span_ns, alone.phases)


@pytest.mark.parametrize("name", [name for name in TRACES if name in TRUTH])
def test_no_event_is_lost_and_the_timeline_is_exact(name: str) -> None:
    summary, truth = inspected(name), TRUTH[name]
    assert summary.events == truth["events"]
    assert summary.device_events == truth["gpu_events"]
    if not truth["gpu_events"]:
        assert summary.clock == "host"
        return
    assert summary.busy_ns == truth["gpu_busy_union_ns"]
    assert abs(summary.span_ns - truth["gpu_span_ns"]) <= FLOATS.get(name, 0)
    assert summary.linked == truth["linked_by_correlation"]


def test_phases_have_the_time_that_the_author_s_marks_have() -> None:
    authors = {mark.strip("# "): said["gpu_union_ns"] for mark, said in TRUTH[V100]["author_annotations"].items()}
    summary = inspected(V100)
    phases = {phase.phase: phase.kernel_ns for phase in summary.phases}
    assert phases["forward"] == pytest.approx(authors["forward"], rel=0.001)
    assert phases["backward"] + phases.get("loss", 0) == pytest.approx(authors["backward"], rel=0.001)
    assert phases["optimizer"] == pytest.approx(authors["optimizer"], rel=0.001)
    assert phases.get("other", 0) + summary.unattributed_ns <= 0.01 * summary.busy_ns

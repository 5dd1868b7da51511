"""What holds on every trace: parts within their totals, and rows of the report that sum to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from inspection_traces import MAIN, Event, call, kernel, launch, mark, op, span, table
from published_traces import PUBLISHED, TRACES

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.summary import summarize
from profiler_kit.records.traces import PhaseTime, TraceSummary
from profiler_kit.report import trace_sentences
from profiler_kit.report.columns.traces import TRACE_STEP_COLUMNS, TraceItem
from profiler_kit.report.trace_tables import OUTSIDE, phase_lines
from profiler_kit.traces.reader import read

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces"
FILES = [*(PUBLISHED / name for name in TRACES), *sorted(FIXTURES.rglob("*.json.gz"))]


def violations(trace: TraceSummary) -> Iterator[str]:
    """Yield each statement about `trace` that cannot be true."""
    for timing in (*trace.phases, *trace.step_phases, *trace.outside_steps):
        if timing.wait_ns > (timing.host_ns or 0):
            yield f"waits {timing.wait_ns} in host time {timing.host_ns} of {timing.phase}"
        if timing.phase == "recompute" and trace.clock == "host" and timing.kernel_ns > (timing.host_ns or 0):
            yield f"operators {timing.kernel_ns} in host time {timing.host_ns} of {timing.phase}"
        if min(timing.host_ns or 0, timing.kernel_ns, timing.sum_ns, timing.idle_ns, timing.wait_ns, timing.events) < 0:
            yield f"negative: {timing}"
    busy = next(column for column in TRACE_STEP_COLUMNS if column.key == "busy_ns")
    for step in trace.steps:
        period, shown = step.device_ns, busy.value(TraceItem(trace, step))
        if period is not None and not 0 <= int(str(shown)) <= period:
            yield f"busy {shown} in period {period} of step {step.number}"
        if step.idle_ns is not None and step.idle_ns > (period if period is not None else step.host_ns):
            yield f"idle {step.idle_ns} in step {step.number}"
    if trace.busy_ns + trace.idle_ns != trace.span_ns or sum(part.ns for part in trace.idle) != trace.idle_ns:
        yield "busy and idle time do not sum to the span"
    lines, total = phase_lines(trace)
    if (
        sum(line.kernel_ns for line in lines) != trace.busy_ns
        or sum(line.idle_ns or 0 for line in lines) > trace.idle_ns
    ):
        yield "the phases do not sum to the busy time"
    if total.events is not None and sum(line.events or 0 for line in lines) != trace.device_events:
        yield "the phases do not sum to the device events"
    if trace.steps:
        in_steps = sum(line.kernel_ns for line in lines if not line.label.startswith("("))
        if trace.outside_ns and in_steps > sum(step.kernel_ns for step in trace.steps):
            yield "rows of phases hold work outside the steps"
    notes = " ".join(trace.notes)
    if "with_stack=True" in notes and trace.has_modules:
        yield "the notes ask for stacks, which are there"
    if "marked" in trace_sentences.place(trace) and (trace.steps_inferred or not trace.steps):
        yield "steps are called marked without marks"


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_trace_keeps_the_invariants(file: Path) -> None:
    assert list(violations(summarize(attribute(read(file))))) == []


def summary(tmp_path: Path, events: list[Event], **top: object) -> TraceSummary:
    trace = summarize(attribute(table(tmp_path, events, **top)))
    assert list(violations(trace)) == []
    return trace


def step(number: int, start: float, end: float) -> Event:
    return mark(f"ProfilerStep#{number}", start, end)


def phase(trace: TraceSummary, name: str) -> PhaseTime:
    return next(timing for timing in trace.phases if timing.phase == name)


# ---- waits


def test_a_wait_outside_operators_is_host_time_of_its_phase(tmp_path: Path) -> None:
    events = [
        step(1, 0, 1000),
        op("aten::mul", 10, 20),
        launch(1, 12),
        kernel("k", 15, 900, 1),
        launch(2, 100, 900, name="cudaDeviceSynchronize"),
        mark("Optimizer.step#SGD.step", 950, 990),
    ]
    other = phase(summary(tmp_path, events), "other")
    assert (other.wait_ns, other.host_ns) == (800_000, 890_000)


def test_waits_on_other_threads_are_in_no_phase_and_a_note_says_so(tmp_path: Path) -> None:
    events = [
        step(1, 0, 1000),
        op("aten::mul", 10, 20),
        launch(1, 12),
        kernel("k", 15, 900, 1),
        launch(2, 100, 800, name="cudaEventSynchronize", thread=MAIN + 7),
        launch(3, 100, 800, name="cudaEventSynchronize", thread=MAIN + 8),
    ]
    trace = summary(tmp_path, events)
    assert sum(timing.wait_ns for timing in trace.phases) == 0
    assert sum(wait.wait_ns for wait in trace.syncs) == 1_400_000
    assert any("wait for the device for 1.4 ms" in note for note in trace.notes)


def test_the_profilers_own_wait_is_not_the_programs(tmp_path: Path) -> None:
    def trace(caller: str) -> TraceSummary:
        return summary(
            tmp_path,
            [
                op("aten::mul", 10, 20),
                launch(1, 12),
                kernel("k", 15, 900, 1),
                call(caller, 40, 950),
                call("torch/cuda/__init__.py(990): synchronize", 45, 940),
                launch(2, 100, 900, name="cudaDeviceSynchronize"),
            ],
        )

    assert trace("torch/autograd/profiler.py(363): __exit__").syncs == ()
    assert [wait.wait_ns for wait in trace("train.py(3): main").syncs] == [800_000]


def test_launches_are_said_to_wait_for_space_only_in_the_phase_where_they_do() -> None:
    if not TRACES:
        pytest.skip("the published traces are missing")
    trace = summarize(attribute(read(PUBLISHED / "hta/ns_resolution_resnet_ddp_v100.json.gz")))
    full = {wait.phase for wait in trace.syncs if wait.name == "(launch queue full)"}
    for sentence in trace_sentences.clocks(trace):
        if "full launch queue" in sentence:
            assert sentence.split()[0].lower() in full


# ---- steps


def launched(start: float, correlation: int, begin: float, end: float, **where: int) -> list[Event]:
    return [launch(correlation, start), kernel(f"k{correlation}", begin, end, correlation, **where)]


def test_work_outside_the_steps_has_its_own_row(tmp_path: Path) -> None:
    events = [
        mark("Optimizer.step#SGD.step", 0, 20),
        *launched(5, 1, 10, 60),
        step(1, 100, 200),
        op("aten::mul", 110, 120),
        mark("Optimizer.step#SGD.step", 140, 160),
        *launched(145, 2, 150, 180),
    ]
    trace = summary(tmp_path, events)
    assert phase(trace, "optimizer").kernel_ns == 80_000
    assert [(timing.phase, timing.kernel_ns) for timing in trace.step_phases if timing.kernel_ns] == [
        ("optimizer", 30_000)
    ]
    assert {line.label: line.kernel_ns for line in phase_lines(trace)[0] if line.kernel_ns} == {
        "optimizer": 30_000,
        OUTSIDE: 50_000,
    }


def test_work_of_one_step_that_runs_on_in_the_next_does_not_exceed_the_period(tmp_path: Path) -> None:
    events = [
        step(1, 0, 50),
        *launched(5, 1, 10, 500),
        step(2, 50, 100),
        *launched(60, 2, 70, 90, stream=9),
        op("aten::mul", 1, 2),
    ]
    first, _ = summary(tmp_path, events).steps
    assert (first.kernel_ns, first.device_ns, first.idle_ns) == (490_000, 60_000, 0)


def test_a_pause_of_the_recording_is_not_part_of_a_step(tmp_path: Path) -> None:
    events: list[Event] = [op("aten::mul", 1, 2)]
    for index, (number, start) in enumerate(((2, 0), (3, 100), (7, 5000), (8, 5100))):
        events += [step(number, start, start + 100), *launched(start + 10, index, start + 20, start + 60)]
    trace = summary(tmp_path, events)
    assert [step.device_ns for step in trace.steps] == [100_000, None, 100_000, None]
    assert trace.step_ns == 100_000
    assert any("Step 7 follows step 3" in note for note in trace.notes)


def test_without_a_device_a_step_lasts_as_long_as_its_mark(tmp_path: Path) -> None:
    events = [
        step(1, 0, 1000),
        mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 900),
        op("aten::mul", 910, 950),
        step(2, 1000, 2000),
        mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1010, 1900),
        op("aten::mul", 1910, 1950),
    ]
    trace = summary(tmp_path, events)
    assert (trace.span_ns, trace.busy_ns) == (2_000_000, 80_000)
    assert [(step.host_ns, step.kernel_ns, step.idle_ns) for step in trace.steps] == [(1_000_000, 40_000, 960_000)] * 2
    waiting = sum(part.ns for part in trace.idle if part.cause == "waiting for data")
    assert waiting == 2 * 890_000


# ---- notes


def test_notes_do_not_ask_for_what_was_recorded(tmp_path: Path) -> None:
    events = [op("aten::mul", 10, 20), call("train.py(3): main", 0, 30)]
    assert not any("with_stack=True" in note for note in summary(tmp_path, events).notes)
    assert any("with_stack=True" in note for note in summary(tmp_path, events[:1]).notes)
    assert not any("with_stack=True" in note for note in summary(tmp_path, events[:1], with_stack=1).notes)


def test_a_range_named_after_a_phase_holds_work_that_nothing_else_attributes(tmp_path: Path) -> None:
    events = [
        step(1, 0, 1000),
        mark("## forward ##", 10, 400),
        op("aten::mul", 20, 300),
        mark("## optimizer ##", 500, 800),
        mark("Optimizer.step#SGD.step", 510, 600),
        op("aten::add_", 520, 560),
        span("user_annotation", "## sparse_data_dist ##", 850, 950),
        op("aten::cat", 860, 900),
    ]
    trace = summary(tmp_path, events)
    assert {timing.phase: timing.kernel_ns for timing in trace.phases if timing.kernel_ns} == {
        "forward": 280_000,
        "optimizer": 40_000,
        "other": 40_000,
    }

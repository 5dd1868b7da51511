"""Idle time of the device and waits of the host in a run's traced steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_traces import TraceText, assert_busy_and_idle_are_the_span, attribute, attribution
from traced_runs import step_of

from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.sums import divide_rounded
from profiler_kit.records.traces import WaitByPhase, idle_by_cause
from profiler_kit.traces.table import NONE

RECORDED = sorted((Path(__file__).parents[1] / "fixtures" / "traces").glob("*.json.gz"))
US = 1000


def loop(steps: int = 1) -> TraceText:
    """Steps that wait for a batch, launch two kernels, read the loss, and end with the tool's own wait. Times are in us."""
    t = TraceText()
    for i in range(steps):
        at = i * 3000 * US
        t.step(i + 1, at, at + 2000 * US)
        t.phase("data", at, at + 300 * US)
        t.phase("forward", at + 300 * US, at + 800 * US)
        t.op("aten::mm", at + 400 * US, at + 500 * US, sequence=1)
        t.kernel("mm", at + 505 * US, at + 705 * US, launched=at + 450 * US)
        t.events[-2]["dur"] = 45 * US
        t.op("aten::mul", at + 600 * US, at + 700 * US, sequence=2)
        t.kernel("mul", at + 707 * US, at + 907 * US, launched=at + 650 * US)
        t.phase("loss", at + 800 * US, at + 1000 * US)
        t.op("aten::item", at + 810 * US, at + 990 * US)
        t.host("cuda_runtime", "cudaStreamSynchronize", at + 820 * US, at + 920 * US, correlation=-1)
        t.phase("optimizer", at + 1000 * US, at + 1500 * US)
        t.op("aten::_foreach_add_", at + 1100 * US, at + 1200 * US)
        t.kernel("add", at + 1210 * US, at + 1710 * US, launched=at + 1190 * US)
        t.host("cuda_runtime", "cudaDeviceSynchronize", at + 1600 * US, at + 1720 * US, correlation=-1)
        t.op("aten::zeros", at + 2100 * US, at + 2200 * US)
        t.kernel("of no step", at + 2300 * US, at + 2400 * US, launched=at + 2150 * US)
    return t


def by_phase(run: ConfigRun) -> dict[tuple[str, str], int]:
    return {(part.cause, part.phase): part.ns // US for part in run.idle}


def test_idle_time_by_cause_and_by_the_phase_whose_work_ended_it(tmp_path: Path) -> None:
    run = loop().attribute(tmp_path)
    assert run.span_ns == 1710 * US  # from the mark to the last kernel's end, not to the mark's end
    assert by_phase(run) == {
        ("waiting for data", "forward"): 300,
        ("op dispatch", "forward"): 50,
        ("python", "forward"): 100,
        ("launch latency", "forward"): 55 + 2,
        ("synchronization", "optimizer"): 13,
        ("op dispatch", "optimizer"): 70 + 90,
        ("python", "optimizer"): 110,
        ("launch latency", "optimizer"): 20,
    }
    assert_busy_and_idle_are_the_span(run)


def test_only_marked_steps_count(tmp_path: Path) -> None:
    """Between steps the profiler works, and whatever else: that idle time is nobody's."""
    one, two = loop(1).attribute(tmp_path), loop(2).attribute(tmp_path)
    assert two.traced_steps == 2
    assert (two.span_ns, by_phase(two), step_of(two).syncs) == (one.span_ns, by_phase(one), step_of(one).syncs)
    assert [part.gaps for part in two.idle] == [part.gaps for part in one.idle]
    assert (two.phases, two.device_ns, step_of(two).queue) == (one.phases, one.device_ns, step_of(one).queue)


def test_waits_of_the_program_but_not_the_tools_own(tmp_path: Path) -> None:
    run = loop().attribute(tmp_path)
    (wait,) = step_of(run).syncs
    assert (wait.name, wait.call, wait.phase, wait.calls) == ("aten::item", "cudaStreamSynchronize", "loss", 1)
    assert wait.wait_ns == 100 * US
    assert wait.waited_for == (WaitByPhase(phase="forward", ns=87 * US), WaitByPhase(phase="", ns=13 * US))


def test_the_host_beside_the_device_by_phase(tmp_path: Path) -> None:
    run = loop().attribute(tmp_path)
    assert {t.phase: (t.host_ns, t.kernel_ns, t.wait_ns) for t in run.phases} == {
        "forward": (500 * US, 400 * US, 0),
        "optimizer": (500 * US, 500 * US, 0),
    }
    assert step_of(run).queue is not None
    assert (step_of(run).queue.max_depth, step_of(run).queue.full) == (1, False)


def test_a_step_without_device_work_has_no_span(tmp_path: Path) -> None:
    t = loop()
    t.step(9, 9000 * US, 9900 * US)
    run = t.attribute(tmp_path)
    assert run.traced_steps == 2
    assert run.span_ns == 1710 * US // 2
    assert_busy_and_idle_are_the_span(run)


def test_idle_time_of_several_devices_is_their_mean(tmp_path: Path) -> None:
    t = TraceText()
    t.step(0, 0, 100)
    t.phase("forward", 0, 90)
    t.kernel("k", 20, 50, launched=5, device=0)
    t.kernel("k", 40, 60, launched=6, device=1)
    t.kernel("k", 70, 80, launched=7, device=1)
    run = t.attribute(tmp_path)
    assert (run.device_ns, run.span_ns) == (60, 80)
    assert sum(part.ns for part in run.idle) == 50  # 20 and 30 ns before the first work, 30 after it; 40, then 10


def test_a_host_without_a_device_waits_for_data_or_runs_python(tmp_path: Path) -> None:
    t = TraceText()
    for i in (0, 1):
        at = i * 1000
        t.step(i, at, at + 900)
        t.phase("data", at, at + 100)
        t.phase("forward", at + 100, at + 300)
        t.op("aten::mul", at + 150, at + 250, sequence=1)
        t.phase("optimizer", at + 300, at + 900)
        t.op("aten::add_", at + 400, at + 500)
    t.op("aten::empty", 950, 960)  # between the steps
    run = t.attribute(tmp_path)
    assert (run.clock, run.span_ns, run.device_ns) == ("operator", 500, 200)
    assert idle_by_cause(run.idle) == {"python": 50 + 150, "waiting for data": 100}
    assert (step_of(run).syncs, step_of(run).queue) == ((), None)
    assert {t.phase: (t.host_ns, t.wait_ns) for t in run.phases} == {"forward": (200, None), "optimizer": (600, None)}


@pytest.mark.parametrize("path", [p for p in RECORDED if ".cuda." in p.name], ids=lambda p: p.name.partition(".")[0])
def test_recorded_steps_span_from_their_mark_to_their_last_kernel(path: Path) -> None:
    run, result = attribute(path), attribution(path)
    ends = result.table.end_ns[result.device.rows]
    spans = [
        int(ends[result.device.step == i].max()) - step.start_ns
        for i, step in enumerate(result.steps)
        if (result.device.step == i).any()
    ]
    assert (result.device.step != NONE).all()
    assert run.span_ns == divide_rounded(sum(spans), len(result.steps))
    assert run.span_ns < divide_rounded(sum(step.end_ns - step.start_ns for step in result.steps), len(result.steps))
    launching = [idle_by_cause(run.idle)[cause] for cause in ("op dispatch", "python", "launch latency")]
    assert sum(launching) > 0.9 * sum(part.ns for part in run.idle)  # a network so small waits for its launches
    assert all(wait.phase in ("loss", "other") for wait in step_of(run).syncs)
    assert all(t.wait_ns is not None and t.host_ns is not None and t.wait_ns < t.host_ns for t in run.phases)

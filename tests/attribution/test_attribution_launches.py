"""The launch queue and the steps' periods."""

from __future__ import annotations

import pytest
from inspection_written import Written

from profiler_kit.attribution.host_time import MIN_BLOCKED_LAUNCHES, MIN_QUEUE_DEPTH
from profiler_kit.attribution.summary import summarize
from profiler_kit.records.traces import Queue, TraceSummary

US = 1000


def queue_of(trace: Written) -> Queue:
    result = summarize(trace.attribution()).queue
    assert result is not None
    return result


def test_depth_is_the_launches_that_have_not_begun() -> None:
    trace = Written()
    for index in range(5):  # launched every 10 us, each runs 40 us one after the other, from 5 us on
        trace.work((5 + 40 * index) * US, (45 + 40 * index) * US, trace.launch(10 * index * US, (10 * index + 4) * US))
    queue = queue_of(trace)
    # begun at 5, 45, 85, ...: at 40 us the first alone has, so that four of five wait
    assert (queue.max_depth, queue.median_depth) == (4, 2.0)
    assert queue.delay_ns == (85 - 24) * US  # of 1, 31, 61, 91, 121
    assert (queue.full, queue.growing, queue.blocked_ns) == (False, False, 0)


def test_a_graphs_kernels_are_one_launch() -> None:
    trace = Written()
    graph = trace.call("cudaGraphLaunch", 0, 10)
    for start in range(20, 120, 10):
        trace.work(start, start + 9, graph)
    queue = queue_of(trace)
    assert (queue.max_depth, queue.delay_ns) == (1, 10)


def flooded(*, places: int = 1000, more: int = 200, waits: bool = True) -> Written:
    """`more` launches than the queue has places, 5 us each; with no place left one waits until a kernel has begun.

    Kernels take 1 ms, so that a launch with no place before it takes 1 ms too.
    """
    trace = Written()
    now = 0
    for index in range(places + more):
        end = now + 5 * US
        if waits and index >= places:
            end = max(end, (index - places + 20) * 1000 * US)
        trace.work((index + 20) * 1000 * US, (index + 21) * 1000 * US, trace.launch(now, end))
        now = end
    return trace


@pytest.mark.parametrize("places", [100, 1000, 2000])
def test_launches_that_wait_for_a_place_make_the_queue_full_however_many_it_holds(places: int) -> None:
    summary = summarize(flooded(places=places).attribution())
    assert summary.queue is not None
    assert summary.queue.full
    first = (20 * 1000 - 5 * places) * US  # until the first kernel begins
    assert summary.queue.max_depth == places + 1
    assert summary.queue.blocked_ns == 199 * 995 * US + first - 5 * US
    (wait,) = summary.syncs
    assert (wait.name, wait.call, wait.calls) == (
        "(launch queue full)",
        "cudaLaunchKernel",
        200,
    )
    assert wait.wait_ns == summary.queue.blocked_ns
    assert sum(part.ns for part in wait.waited_for) == wait.wait_ns


@pytest.mark.parametrize("places", [1000, 2000])
def test_a_deep_queue_whose_launches_take_no_longer_is_not_full(places: int) -> None:
    queue = queue_of(flooded(waits=False, places=places))
    assert queue.max_depth > places + 100
    assert (queue.full, queue.blocked_ns) == (False, 0)


def test_slow_launches_from_which_the_queue_goes_on_to_grow_were_not_for_want_of_a_place() -> None:
    trace = Written()
    now = 0
    for index in range(400):
        duration = 500 * US if 200 <= index < 210 else 5 * US  # a network's second part is loaded there
        trace.work((index + 100) * 1000 * US, (index + 101) * 1000 * US, trace.launch(now, now + duration))
        now += duration
    queue = queue_of(trace)
    assert queue.max_depth > 390
    assert (queue.full, queue.blocked_ns) == (False, 0)


@pytest.mark.parametrize(
    ("places", "more", "full"),
    [(1000, MIN_BLOCKED_LAUNCHES - 1, False), (1000, MIN_BLOCKED_LAUNCHES, True), (MIN_QUEUE_DEPTH // 2, 200, False)],
)
def test_few_slow_launches_or_few_ahead_of_them_make_no_full_queue(places: int, more: int, full: bool) -> None:
    assert queue_of(flooded(places=places, more=more)).full is full


def test_a_long_launch_with_few_ahead_has_another_reason() -> None:
    trace = Written()
    for index in range(20):
        trace.work(
            (1000 * index + 900) * US,
            (1000 * index + 950) * US,
            trace.launch(1000 * index * US, (1000 * index + 800) * US),
        )
    assert not queue_of(trace).full


def stepped(periods: list[int], *, launches: int, host: int) -> TraceSummary:
    """Steps of `launches` each: the host takes `host` us per step, the device each period, back to back."""
    trace = Written()
    device = 10
    for step, period in enumerate(periods):
        trace.step(step, step * host * US, (step + 1) * host * US)
        for index in range(launches):
            at = step * host + index * host // launches
            trace.work(
                (device + index * period // launches) * US,
                (device + (index + 1) * period // launches) * US,
                trace.launch(at * US, (at + 1) * US),
            )
        device = max(device + period, (step + 1) * host + 10)
    return summarize(trace.attribution())


def test_a_step_lasts_from_its_first_kernel_to_the_next_ones() -> None:
    summary = stepped([300, 300, 300, 300], launches=30, host=400)
    assert [step.device_ns for step in summary.steps] == [400 * US, 400 * US, 400 * US, None]
    assert [step.kernel_ns for step in summary.steps] == [300 * US] * 4
    assert [step.idle_ns for step in summary.steps] == [100 * US, 100 * US, 100 * US, None]
    assert [step.steady for step in summary.steps] == [True, True, True, False]
    assert (summary.step_ns, summary.host_step_ns) == (400 * US, 400 * US)


def test_a_first_step_that_is_much_longer_is_not_steady() -> None:
    trace = Written()
    for step, start in enumerate((0, 5000, 5100)):
        end = start + (5000 if step == 0 else 100)
        trace.step(step, start * US, end * US)
        trace.work((end - 50) * US, (end - 20) * US, trace.launch((end - 60) * US, (end - 55) * US))
    summary = summarize(trace.attribution())
    assert [step.steady for step in summary.steps] == [False, True, False]
    assert summary.step_ns == 100 * US


def test_while_the_queue_grows_host_steps_are_too_short_and_nothing_is_steady() -> None:
    summary = stepped([900, 900, 900, 900], launches=300, host=300)
    assert summary.queue is not None
    assert summary.queue.growing
    assert not any(step.steady for step in summary.steps)
    assert (summary.step_ns, summary.host_step_ns) == (900 * US, 300 * US)


def test_steps_before_the_queue_stops_growing_are_left_out_of_the_median() -> None:
    # the device is behind for two steps, then the host waits for it: the periods become the host's
    summary = stepped([900, 900, 100, 100, 100, 100, 100, 100], launches=300, host=300)
    steady = [step.device_ns for step in summary.steps if step.steady]
    assert summary.step_ns == sorted(steady)[len(steady) // 2]  # type: ignore[type-var]
    assert not summary.steps[0].steady


@pytest.mark.parametrize("launched", [True, False])
def test_without_steps_there_is_no_period(launched: bool) -> None:
    trace = Written()
    trace.work(0, 10, trace.launch(-5, -1) if launched else None)
    summary = summarize(trace.attribution())
    assert (summary.steps, summary.step_ns, summary.host_step_ns) == ((), None, None)
    assert (summary.queue is not None) == launched


def test_a_step_without_work_has_no_period() -> None:
    trace = Written()
    trace.step(1, 0, 100)
    trace.step(2, 100, 200)
    trace.work(50, 60, trace.launch(10, 20))
    summary = summarize(trace.attribution())
    assert [(step.device_ns, step.kernel_ns) for step in summary.steps] == [(None, 10), (None, 0)]
    assert summary.step_ns is None

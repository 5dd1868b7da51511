"""Further passes over undecided configurations: their order, their processes and their end."""

from __future__ import annotations

from dataclasses import replace

from profiler_kit.measurement.repetition import FurtherPasses
from profiler_kit.measurement.visits import FURTHER_BUDGET_S, Visit, VisitOrder, reverse_pass
from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.differences import MAX_PROCESSES

DEFAULT = RunConfig(name="default")


MS = 1_000_000


def around(ns: int) -> Interval:
    """A median with an interval of one percent."""
    return Interval(median=ns, low=ns - ns // 200, high=ns + ns // 200)


class Clock:
    """A clock that a test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def noisy(name: str, *medians_ms: float) -> ConfigRun:
    settings = () if name == "default" else (NamedValue(name=name, value="on"),)
    steps = [around(round(ms * MS)) for ms in medians_ms]
    repeats = tuple(Repeat(step_ns=step) for step in steps[1:])
    return ConfigRun(config=RunConfig(name=name, settings=settings), step_ns=steps[0], further_repeats=repeats)


def passes(runs: list[ConfigRun], clock: Clock, budget_s: float = 60.0) -> FurtherPasses:
    def visit_of(config: RunConfig) -> Visit:
        return Visit(config=config, budget_s=10.0)

    return FurtherPasses(runs=runs, budget_s=budget_s, visit_of=visit_of, clock_s=clock)


def names(visits: list[Visit]) -> list[str]:
    return [visit.config.name for visit in visits]


def test_the_baseline_and_undecided_configurations_run_in_alternating_order() -> None:
    fast = noisy("fast", 3, 3.3)
    runs = [noisy("default", 10, 11), noisy("a", 10.5, 10), fast, noisy("b", 10, 10.6)]
    further = passes(runs, Clock())
    first = further.next_pass()
    assert names(first) == ["default", "a", "b"] or names(first) == ["default", "a", "fast", "b"]
    assert names(further.next_pass()) == names(first)[::-1]
    assert names(further.next_pass()) == names(first)


def test_further_processes_are_short_and_only_time_steps() -> None:
    further = passes([noisy("default", 10, 11), noisy("a", 10.5, 10)], Clock())
    for visit in further.next_pass():
        assert visit.again
        assert visit.further
        assert not visit.checks
        assert visit.trace is None
        assert visit.budget_s == FURTHER_BUDGET_S


def test_decided_configurations_end_the_passes() -> None:
    runs = [noisy("default", 10, 10.01, 10.02), noisy("a", 30, 30.1, 30.2)]
    assert passes(runs, Clock()).next_pass() == []
    full = [10 + 3 * (number % 2) for number in range(MAX_PROCESSES)]
    assert passes([noisy("default", *full), noisy("a", *full)], Clock()).next_pass() == []


def test_a_pass_that_would_not_fit_into_the_budget_is_left_out() -> None:
    clock = Clock()
    runs = [noisy("default", 10, 11), noisy("a", 10.5, 10)]
    further = passes(runs, clock, budget_s=20.0)
    clock.now_s += 8.0  # two passes of two processes took two seconds each
    assert further.next_pass()
    clock.now_s += 20.0 - 8.0 - 1.0
    assert further.next_pass() == []


def test_one_configuration_or_a_failed_baseline_needs_no_further_pass() -> None:
    assert passes([noisy("default", 10)], Clock()).next_pass() == []
    failed = ConfigRun(config=DEFAULT, failure=Failure(kind="crash", message="gone"))
    assert passes([failed], Clock()).next_pass() == []
    assert passes([failed, noisy("a", 10, 11)], Clock()).next_pass() == []


def test_an_order_asks_for_passes_after_its_own_until_none_is_left() -> None:
    forward = [Visit(config=RunConfig(name=name), budget_s=1.0) for name in ("default", "a")]
    more = [[replace(forward[0], further=True), replace(forward[1], further=True)], [replace(forward[1], further=True)]]
    order = VisitOrder(
        has_failed=lambda _: False,
        forward=forward,
        reverse=reverse_pass(forward[1:]),
        further_pass=lambda: more.pop(0) if more else [],
    )
    visits = [visit for visit in order.visits() if isinstance(visit, Visit)]
    assert [(visit.config.name, visit.further) for visit in visits] == [
        ("default", False), ("a", False), ("a", False), ("default", True), ("a", True), ("a", True),
    ]  # fmt: skip
    assert order.count() == len(visits) == 6
    assert order.not_started({id(visit) for visit in visits}) == []


def test_an_order_of_one_configuration_asks_for_none() -> None:
    def never() -> list[Visit]:
        raise AssertionError("asked")

    order = VisitOrder(
        has_failed=lambda _: False, forward=[Visit(config=DEFAULT, budget_s=1.0)], reverse=[], further_pass=never
    )
    assert len([visit for visit in order.visits() if isinstance(visit, Visit)]) == 1

"""Rounds: which processes take turns, how many at a time, and how long."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from measure_models import net
from simulated_clock import let_time_pass_once

pytest.importorskip("torch")

from profiler_kit import process
from profiler_kit.measurement import sweep, turns
from profiler_kit.measurement.visits import RoundProgress, Visit, VisitOrder, ignore_rounds, never, report_round
from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.progress import ProcessStart
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import TargetSpec
from profiler_kit.worker import steps

MS = 1_000_000
STAMP = "open(os.environ['PK_STAMPS'], 'a').write(f'{os.getpid()} {time.monotonic_ns()}\\n')"


@pytest.fixture(autouse=True)
def memory_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has free."""
    monkeypatch.setattr(process, "processes_in_memory", lambda items, _: items)


def first(step_ms: float = 10, **fields: object) -> ConfigRun:
    step_ns = round(step_ms * MS)
    run = ConfigRun(config=RunConfig(name="default"), step_ns=Interval(median=step_ns, low=step_ns, high=step_ns))
    return replace(run, **fields)


def visit(name: str, budget_s: float = 5.0, **fields: object) -> Visit:
    return replace(Visit(config=RunConfig(name=name), budget_s=budget_s, checks=False, again=True), **fields)


def units(*names: str) -> list[tuple[Visit, ...]]:
    return [(visit(name),) for name in names]


def names(members: tuple[Visit, ...]) -> str:
    return "".join(one.config.name for one in members)


def test_a_round_has_all_configurations_several_times() -> None:
    composed = turns.rounds(units("b", "c"), anchor=(visit("a"),), copies=3, first=first(), device="cpu")
    assert list(map(names, composed)) == ["abcabcabc"]
    (members,) = composed
    assert [one.further for one in members] == [False] * 3 + [True] * 6
    assert len(set(map(id, members))) == 9
    kept = turns.rounds(units("b"), anchor=(visit("a"),), copies=2, first=first(), device="cpu", keeps=False)
    assert not any(one.further for one in kept[0])


def test_what_needs_no_comparison_runs_once() -> None:
    (members,) = turns.rounds(
        units("b"), anchor=(visit("a"),), once=(visit("x"), visit("y")), copies=2, first=first(), device="cpu"
    )
    assert names(members) == "abxyab"


def test_memory_limits_the_processes_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "processes_in_memory", lambda items, _: 5)
    few = turns.rounds(units("b"), anchor=(visit("a"),), copies=8, first=first(), device="cpu")
    assert list(map(names, few)) == ["abab"]
    many = turns.rounds(units(*"bcdefg"), anchor=(visit("a"),), copies=8, first=first(), device="cpu")
    assert list(map(names, many)) == ["abcde", "afg"], "each with what the others are compared with"
    pairs = [(visit(name), visit(name)) for name in "abc"]
    assert list(map(names, turns.rounds(pairs, copies=1, first=first(), device="cpu"))) == ["aabb", "cc"]


def test_device_memory_limits_the_processes_of_a_round() -> None:
    environment = Environment(
        device="cuda:0", device_name="x", torch="2", python="3", platform="p", device_memory_bytes=10_000_000_000
    )
    run = first(environment=environment, peak_reserved_bytes=1_000_000_000)
    assert turns.processes_together(run, "cuda") == 4  # of 1.7 GB each, in 7 GB
    assert turns.processes_together(replace(run, environment=None), "cuda") == 1
    assert turns.processes_together(replace(run, peak_reserved_bytes=9_000_000_000), "cuda") == 1


def test_more_processes_have_fewer_turns_each() -> None:
    counts = []
    for copies in (1, 4, 8, 12):
        (members,) = turns.rounds(units("b"), anchor=(visit("a"),), copies=copies, first=first(), device="cpu")
        (count,) = {one.turns.count for one in members if one.turns is not None}
        counts.append(count)
    assert counts == [turns.MAX_TURNS, turns.MAX_TURNS, 16, turns.MIN_FULL_TURNS]


def test_a_round_has_two_processes_of_each_unless_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "servers_together", lambda: 1)
    assert [turns.copies_within(budget_s) for budget_s in (10.0, 60.0)] == [1, 2]
    monkeypatch.setattr(turns, "servers_together", lambda: 8)
    assert [turns.copies_within(budget_s) for budget_s in (10.0, 60.0)] == [8, 8]


def test_the_members_of_a_round_know_it() -> None:
    composed = turns.rounds(units("b", "c"), anchor=(visit("a"),), copies=1, first=first(), device="cpu")
    again = turns.rounds(units("b", "c"), anchor=(visit("a"),), copies=1, first=first(), device="cpu")
    numbers = [{one.turns.round_ns for one in members if one.turns is not None} for members in (*composed, *again)]
    assert list(map(len, numbers)) == [1, 1]
    assert numbers[0] != numbers[1]


def test_only_unhashed_processes_build_with_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "usable_cores", lambda: 8)
    (members,) = turns.rounds(units("b"), anchor=(visit("a"),), copies=2, first=first(), device="cpu")
    assert [one.building_threads for one in members] == [None, None, 2, 2]


@pytest.mark.parametrize(
    ("step_ms", "budget_s", "expected"),
    [
        (10, 5.0, (24, 50, 3, 1)),
        (20, 5.0, (24, 60, 3, 1)),  # three steps
        (10, 0.5, (10, 50, 3, 1)),
        (100, 5.0, (24, 100, 1, 0)),  # one step, which refills caches in a negligible part of its time
        (1000, 5.0, (5, 1000, 1, 0)),
    ],
)
def test_a_turn_is_short(step_ms: float, budget_s: float, expected: tuple[int, int, int, int]) -> None:
    found = turns.turns_of(first(step_ms), budget_s, turns.MAX_TURNS)
    assert found is not None
    assert (found.count, found.turn_ns // MS, found.fewest, found.untimed) == expected


def test_a_very_long_step_is_measured_in_one_series() -> None:
    assert turns.turns_of(first(2000), 5.0, turns.MAX_TURNS) is None
    assert turns.turns_of(first(step_ns=None), 5.0, turns.MAX_TURNS) is None
    assert turns.rounds(units("b"), anchor=(visit("a"),), copies=1, first=first(2000), device="cpu") == []


def test_a_given_number_of_steps_is_measured_in_one_series() -> None:
    assert turns.rounds([(visit("b", steps=10),)], anchor=(visit("a"),), copies=1, first=first(), device="cpu") == []


def test_one_configuration_has_nothing_to_alternate_with() -> None:
    assert turns.rounds([], anchor=(visit("a"),), copies=4, first=first(), device="cpu") == []


# --- real processes


def spec(folder: Path, on_cpu: str) -> TargetSpec:
    inputs = "example_inputs = torch.linspace(-1, 1, 8).reshape(2, 4)\n"
    (folder / "net.py").write_text(net(on_cpu, after=inputs))
    return TargetSpec(spec=str(folder / "net.py"), sliced=False)


def finishing(
    target: TargetSpec, *members: Visit, on_round: Callable[[RoundProgress], None] = ignore_rounds
) -> Iterator[sweep.FinishedVisit]:
    (members,) = turns.rounds([members[1:]], anchor=members[:1], copies=1, first=first(), device="cpu")
    return sweep.measure_visits(
        target,
        [never, members, never],
        device="cpu",
        on_start=lambda _: None,
        on_progress=lambda *_: None,
        on_round=on_round,
        ahead=0,
    )


def measured(target: TargetSpec, *members: Visit) -> list[sweep.FinishedVisit]:
    return list(finishing(target, *members))


@pytest.mark.parametrize("at", [turns.MIN_TURNS - 1, turns.MIN_TURNS, 6])
def test_ctrl_c_keeps_the_turns_that_were_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    told: list[RoundProgress] = []

    def interrupt(progress: RoundProgress) -> None:
        told.append(progress)
        if progress.turns == at:
            raise KeyboardInterrupt

    monkeypatch.setattr(turns, "MAX_STEPS", 3)
    runs: list[ConfigRun] = []
    finished = finishing(spec(tmp_path, "pass"), visit("a", 0.4), visit("b", 0.4), on_round=interrupt)
    with pytest.raises(KeyboardInterrupt):
        runs.extend(done.run for done in finished)
    if at < turns.MIN_TURNS:
        assert runs == []
        return
    assert [(run.config.name, run.failure, len(run.steps_ns)) for run in runs] == [
        ("a", None, 3 * at),
        ("b", None, 3 * at),
    ]
    assert [progress.turns for progress in told] == list(range(at + 1))
    assert told[0].left_s is None
    assert (told[1].left_s or 0.0) > 0
    assert len(told[0].visits) == 2
    assert told[0].count > at


def test_the_progress_of_a_round() -> None:
    visits = (visit("a"), visit("b"), visit("a"))
    processes: list[ProcessStart | None] = []
    texts: list[str] = []
    for count in range(4):
        left_s = 0.5 * (3 - count) if count else None
        report_round(
            RoundProgress(visits=visits, turns=count, count=3, left_s=left_s),
            number=4,
            count=8,
            purpose="trial ",
            later_ns=2 * 10**9,
            on_process=processes.append,
            on_progress=texts.append,
        )
    assert [one and (one.place, one.name, one.left_ns) for one in processes] == [
        ("4-6/8", "trial starting 3 processes that take turns", None),
        ("4-6/8", "trial a, b: 3 turns each", 3 * 10**9),
    ]
    assert texts == [
        "[4-6/8] trial starting 3 processes that take turns",
        "[4-6/8] trial turn 2 of 3",
        "[4-6/8] trial turn 3 of 3",
    ]


def test_in_a_round_the_baseline_needs_no_process_of_its_own() -> None:
    order = partial(
        VisitOrder,
        has_failed=lambda _: False,
        forward=[visit("a"), visit("b")],
        reverse=[visit("b")],
        last=[visit("again")],
    )
    alone = order()
    assert visit("again") in list(alone.visits())
    assert alone.count() == 4
    together = order(rounds=lambda visits: [(visit("a"), *visits)])
    assert visit("again") not in list(together.visits())
    assert together.count() == 4


def test_processes_alternate_and_one_at_a_time_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = tmp_path / "stamps"
    monkeypatch.setenv("PK_STAMPS", str(stamps))
    monkeypatch.setattr(turns, "MAX_STEPS", 3)
    done = measured(spec(tmp_path, STAMP), visit("a", 0.21), visit("b", 0.21))
    assert [one.run.config.name for one in done] == ["a", "b"]
    runs = [one.run for one in done]
    assert [run.failure for run in runs] == [None, None]
    assert [len(run.steps_ns) for run in runs] == [12, 12]
    assert runs[0].round_ns == runs[1].round_ns is not None
    assert all(run.host_load is not None and run.step_ns is not None for run in runs)
    assert all(0 < (run.needed_ns or 0) * 1e-9 <= one.took_s for one, run in zip(done, runs, strict=True))
    pids = [line.split()[0] for line in stamps.read_text().splitlines()]
    stretches = [pid for pid, _ in itertools.groupby(pids)]
    assert len(set(pids)) == 2
    # first steps of both, then four turns in alternating order: a b | a b, b a, a b, b a; hashes follow the last turns
    a, b = stretches[:2]
    assert stretches == [a, b, a, b, a, b, a]


@pytest.fixture
def eight_steps_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps in each turn on a slow machine as on a fast one: the 31st of a process is in its turns."""
    monkeypatch.setattr(turns, "MIN_STEPS", turns.MAX_STEPS)
    assert steps.MAX_WARMUP_STEPS + 2 < 31 < 3 + turns.MIN_TURNS * turns.MAX_STEPS


@pytest.mark.usefixtures("eight_steps_a_turn")
def test_a_process_that_dies_in_its_turn_is_a_failed_run(tmp_path: Path) -> None:
    dies = "if torch.backends.cudnn.benchmark and self.calls > 30: os._exit(3)"
    slow = visit("b", 0.4, config=RunConfig(name="b", benchmark=True))
    good, dead = measured(spec(tmp_path, dies), visit("a", 0.4), slow)
    assert good.run.failure is None
    assert dead.run.failure == Failure(
        kind="crash", message="the process ended with exit status 3 and no result", log_tail=""
    )


@pytest.mark.usefixtures("eight_steps_a_turn")
def test_a_process_that_hangs_in_its_turn_takes_its_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hung = tmp_path / "hung"
    hangs = f"if torch.backends.cudnn.benchmark and self.calls > 30: open({str(hung)!r}, 'w').close(); time.sleep(300)"
    slow = visit("b", 0.4, config=RunConfig(name="b", benchmark=True), timeout_s=600.0)
    let_time_pass_once(hung.exists, 600.0, monkeypatch)
    good, dead = measured(spec(tmp_path, hangs), visit("a", 0.4), slow)
    assert good.run.failure is None
    assert dead.run.failure is not None
    assert dead.run.failure.kind == "timeout"
    assert 600 <= dead.took_s < 1200, "one limit for all turns"

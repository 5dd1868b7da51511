"""Further processes of two targets, interleaved, for a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit import process
from profiler_kit.measurement.session import Session, measure_sides
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.progress import ProcessStart
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import TargetSpec
from profiler_kit.statistics.report_noise import step_difference

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
    def forward(self, x):
        return self.fc(x)
example_inputs = torch.ones(2, 4)
"""
STEP = Interval(median=1000, low=990, high=1010)
CONFIGS = RunConfig(name="default"), RunConfig(name="broken")


def unread(run: ConfigRun, trace: Path) -> ConfigRun:
    return run


def test_both_sides_take_turns_in_reversed_order(tmp_path: Path) -> None:
    starts: list[tuple[str, int, int]] = []

    def side(name: str) -> Session:
        file = tmp_path / f"{name}.py"
        file.write_text(NET)

        def on_process(start: ProcessStart | None) -> None:
            if start is not None:
                starts.append((name, start.number, start.count))

        return Session(
            spec=TargetSpec(spec=str(file)),
            device="cpu",
            budget_s=0.1,
            steps=3,
            on_progress=lambda _: None,
            on_process=on_process,
            read_trace=unread,
            read_parts_trace=unread,
            runs=[
                ConfigRun(config=CONFIGS[0], step_ns=STEP),
                ConfigRun(config=CONFIGS[1], failure=Failure(kind="crash", message="gone")),
            ],
        )

    a, b = side("a"), side("b")
    measure_sides((a, b), CONFIGS, passes=2, further_s=0.0)
    assert [name for name, _, _ in starts] == ["b", "a", "a", "b"], "a failed configuration is not run again"
    assert {count for _, _, count in starts} == {8}
    assert [number for _, number, _ in starts] == sorted(number for _, number, _ in starts)
    for session in (a, b):
        run, failed = session.runs
        assert run.step_ns == STEP
        assert run.repeat is not None
        assert len(run.further_repeats) == 1
        assert all(len(repeat.steps_ns) == 3 for repeat in run.repeats)
        assert failed.repeats == ()
        assert not session.interrupted


def test_both_sides_are_in_one_round_where_their_steps_wait_for_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiler_kit.measurement.turns.servers_together", lambda: 2)
    monkeypatch.setattr(process, "processes_in_memory", lambda items, _: items)
    starts: list[ProcessStart] = []
    file = tmp_path / "net.py"
    file.write_text(NET)

    def side() -> Session:
        return Session(
            spec=TargetSpec(spec=str(file)),  # of both sides: equal, but not the same object
            device="cpu",
            budget_s=2.0,
            on_progress=lambda _: None,
            on_process=lambda start: starts.append(start) if start is not None else None,
            read_trace=unread,
            read_parts_trace=unread,
            runs=[ConfigRun(config=CONFIGS[0], step_ns=STEP)],
        )

    a, b = side(), side()
    measure_sides((a, b), CONFIGS[:1], passes=3, further_s=0.0)
    rounds = []
    for session in (a, b):
        (run,) = session.runs
        assert [len(repeat.steps_ns) > 3 for repeat in run.repeats] == [True] * 4
        rounds.append([repeat.round_ns for repeat in run.repeats])
    assert rounds[0] == rounds[1]
    assert None not in rounds[0]
    assert [rounds[0].count(number) for number in sorted(set(rounds[0]), key=str)] == [2, 2], "two rounds of two"
    assert [start.place for start in starts] == ["1-4/8", "1-4/8", "5-8/8", "5-8/8"]
    found = step_difference(a.runs, b.runs, a.runs[0], b.runs[0])
    assert found is not None
    assert (found.before_processes, found.after_processes) == (4, 4)

"""Commands in slots: as many at a time as there are slots, each outcome as it comes, none left behind."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from waiting import is_running, written_number

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.process import Outcome, SlotCommand, run_in_slots


def python(code: str, *arguments: str, timeout_s: float | None = None) -> SlotCommand:
    return SlotCommand(argv=[sys.executable, "-c", code, *arguments], timeout_s=timeout_s)


def test_every_item_runs_once_in_a_free_slot(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; name = sys.argv[1] + '.running'\n"
        "open(name, 'x').close(); time.sleep(0.2); os.remove(name); print(sys.argv[2])"
    )

    def command_of(item: int, slot: str) -> SlotCommand:
        return python(code, str(tmp_path / slot), str(item))  # fails if another command uses the slot

    ended = list(run_in_slots(range(5), ("a", "b"), command_of))
    outcomes = {item: outcome for item, _, outcome in ended}
    assert sorted(outcomes) == [0, 1, 2, 3, 4]
    assert all(isinstance(outcome, Outcome) and outcome.ok for outcome in outcomes.values())
    assert {item: int(outcome.stdout) for item, outcome in outcomes.items() if isinstance(outcome, Outcome)} == {
        item: item for item in range(5)
    }
    assert {slot for _, slot, _ in ended} == {"a", "b"}


def test_a_fast_item_does_not_wait_for_a_slow_one(tmp_path: Path) -> None:
    programs = {"slow": "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)", "fast": ""}
    ended = []
    for item, _, _ in run_in_slots(programs, range(2), lambda item, _: python(programs[item], str(tmp_path / "fast"))):
        ended.append(item)
        (tmp_path / item).touch()  # the slow one ends after the fast one
    assert ended == ["fast", "slow"]


def test_late_and_impossible_commands_are_outcomes() -> None:
    commands = {
        "late": python("import time; time.sleep(300)", timeout_s=0.5),
        "missing": SlotCommand(argv=["/nowhere/program"]),
        "wrong": python("raise SystemExit(7)"),
    }
    outcomes = {item: outcome for item, _, outcome in run_in_slots(commands, range(2), lambda item, _: commands[item])}
    late, missing, wrong = outcomes["late"], outcomes["missing"], outcomes["wrong"]
    assert isinstance(late, Outcome)
    assert late.timed_out
    assert isinstance(missing, KitError)
    assert isinstance(wrong, Outcome)
    assert wrong.returncode == 7


def test_closing_stops_what_runs(tmp_path: Path) -> None:
    code = "import os, sys, time; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True); time.sleep(float(sys.argv[2]))"
    items = {"short": "0", "long": "300"}

    def command_of(item: str, _: int) -> SlotCommand:
        return python(code, str(tmp_path / item), items[item])

    with contextlib.closing(run_in_slots(items, range(2), command_of)) as ended:
        assert next(ended)[0] == "short"
        pid = written_number(tmp_path / "long")
        assert is_running(pid)
    assert not is_running(pid)


@pytest.mark.parametrize(
    ("log", "returncode", "signal_name", "error"),
    [
        ("note\nerror: first\nhint: one\nerror: a: no such file\nhint: two", 3, None, ("a: no such file", "two")),
        ("error: x", 3, None, ("x", "")),
        ("Traceback\nValueError: boom", 1, None, ("ValueError: boom", "")),
        ("", 5, None, ("exit status 5", "")),
        ("error: x", -9, "SIGKILL", ("ended by SIGKILL", "")),
    ],
)
def test_the_error_of_a_command(log: str, returncode: int, signal_name: str | None, error: tuple[str, str]) -> None:
    outcome = Outcome(
        returncode=returncode,
        signal_name=signal_name,
        timed_out=False,
        duration_ns=1,
        stdout="",
        stdout_cut=False,
        log_tail=log,
    )
    assert outcome.error == error


def test_the_parent_keeps_no_descriptors() -> None:
    def command_of(item: int, _: int) -> SlotCommand:
        return python("pass")

    before = len(list(Path("/proc/self/fd").iterdir()))
    assert len(list(run_in_slots(range(3), range(process.usable_cores()), command_of))) == 3
    assert len(list(Path("/proc/self/fd").iterdir())) == before

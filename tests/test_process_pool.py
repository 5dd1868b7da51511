from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pool_work
import pytest
from waiting import wait_for_end, wait_until

from profiler_kit.errors import KitError, TraceError
from profiler_kit.process import in_processes, pool, workers_for

pytestmark = (
    pytest.mark.fresh_process
)  # the server imports little, and a fork of one that has imported torch costs more


def test_answers_come_in_the_items_order() -> None:
    assert list(in_processes(pool_work.square, range(20), workers=3)) == [n * n for n in range(20)]
    assert list(in_processes(pool_work.slow_first, range(6), workers=2)) == list(range(6))


def test_nothing_to_do_starts_nothing() -> None:
    assert list(in_processes(pool_work.square, [], workers=4)) == []


def test_an_expected_error_is_the_answer_of_its_item() -> None:
    first, second, third = in_processes(pool_work.square, [2, -1, 3], workers=2)
    assert (first, third) == (4, 9)
    assert isinstance(second, TraceError)
    assert (second.message, second.where, second.hint) == ("is negative", "-1", "give another")


def test_a_crash_is_the_failure_of_its_item_alone() -> None:
    answers = list(in_processes(pool_work.dies_at_three, range(8), workers=2))
    assert [a for a in answers if not isinstance(a, KitError)] == [0, 1, 2, 4, 5, 6, 7]
    assert isinstance(answers[3], KitError)
    assert "SIGKILL" in answers[3].message
    ended = list(in_processes(pool_work.quits_at_one, range(3), workers=1))
    assert isinstance(ended[1], KitError)
    assert "exit status 5" in ended[1].message
    assert (ended[0], ended[2]) == (0, 2)


def test_a_bug_is_raised_with_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(in_processes(pool_work.broken, range(3), workers=2))


def test_large_answers_come_whole() -> None:
    assert [len(a) for a in in_processes(pool_work.large, range(3), workers=2) if isinstance(a, bytes)] == [
        5_000_000
    ] * 3


def test_leaving_early_ends_all_processes(tmp_path: Path) -> None:
    answers = in_processes(pool_work.slow_first, list(range(40)), workers=2)
    next(iter(answers))
    answers.close()  # type: ignore[attr-defined]
    program = textwrap.dedent(
        """
        import pathlib, signal, sys, pool_work
        from profiler_kit.process import in_processes
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background
        list(in_processes(pool_work.leaves_its_id, [pathlib.Path(sys.argv[1])] * 3, workers=2))
        """
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    ours = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE
    )
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    children = [int(file.name) for file in tmp_path.iterdir()]
    ours.send_signal(signal.SIGINT)  # to the parent alone: the children are in sessions of their own
    _, errors = ours.communicate()
    assert b"KeyboardInterrupt" in errors
    for child in children:
        wait_for_end(child)


def test_workers_are_bounded_by_items_cores_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_free_bytes", lambda: 1000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert workers_for(3, 1) == 3
    assert workers_for(100, 1) == 16
    assert workers_for(100, 1, limit=4) == 4
    assert workers_for(100, 200) == 4  # 80 % of what is free
    assert workers_for(100, 10**9) == 1
    assert workers_for(0, 1) == 1

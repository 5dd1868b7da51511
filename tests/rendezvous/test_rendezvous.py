"""The place of a process in a job, and the messages between its ranks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from simulated_clock import SimulatedClock
from waiting import AMPLE_S, free_port, wait_until

from profiler_kit.errors import KitError, UsageError
from profiler_kit.rendezvous import meeting
from profiler_kit.rendezvous.meeting import PIECE_BYTES, Launch, Meeting, check_same, find_launch, join, use_own_gpu

JOB = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}


def test_a_launch_is_read_from_the_environment() -> None:
    launch = find_launch(
        {**JOB, "LOCAL_RANK": "1", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}
    )
    assert launch == Launch(rank=3, ranks=8, local_rank=1, address="node0", port=29500, has_store=True, label="0/2")


@pytest.mark.parametrize("missing", sorted(JOB))
def test_no_launch_without_all_variables(missing: str) -> None:
    assert find_launch({name: value for name, value in JOB.items() if name != missing}) is None


def test_without_a_launcher_the_rank_counts_as_local() -> None:
    launch = find_launch(JOB)
    assert launch is not None
    assert (launch.local_rank, launch.has_store) == (3, False)


def test_a_rank_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="RANK"):
        find_launch({**JOB, "RANK": "first"})


@pytest.mark.parametrize(("visible", "expected"), [(None, "1"), ("4,5", "5"), ("GPU-aa, GPU-bb", "GPU-bb"), ("", "")])
def test_each_rank_sees_one_gpu(visible: str | None, expected: str) -> None:
    launch = find_launch({**JOB, "LOCAL_RANK": "1"})
    assert launch is not None
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    use_own_gpu(launch, environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == expected


def test_more_ranks_than_visible_gpus_are_refused() -> None:
    launch = find_launch(JOB)
    assert launch is not None
    with pytest.raises(UsageError, match="rank 3 of this machine has no GPU of its own"):
        use_own_gpu(launch, {"CUDA_VISIBLE_DEVICES": "0,1"})


def test_ranks_with_other_versions_are_refused() -> None:
    check_same([{"host": "a", "torch": "2.13"}, {"host": "b", "torch": "2.13"}])
    with pytest.raises(UsageError, match=r"rank 0 has torch 2.13, rank 1 has 2.6"):
        check_same([{"host": "a", "torch": "2.13"}, {"host": "b", "torch": "2.6"}])


def launches() -> tuple[Launch, Launch]:
    """Two ranks, the first of which serves the store."""
    first = Launch(rank=0, ranks=2, local_rank=0, address="127.0.0.1", port=free_port(), has_store=False, label="0/0")
    return first, replace(first, rank=1, local_rank=1)


@pytest.fixture
def meetings(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Meeting, Meeting]]:
    """Two ranks in this process."""
    pytest.importorskip("torch")
    monkeypatch.setattr(meeting, "END_S", 0.0)  # the second one may be done before
    launch = launches()
    with join(launch[0]) as first, join(launch[1]) as second:
        yield first, second


def test_runs_and_results_travel(meetings: tuple[Meeting, Meeting]) -> None:
    first, second = meetings
    number = first.announce("the job", 12.5)
    announced = second.next_run()
    assert announced is not None
    assert announced == (number, "the job", 12.5)
    trace = bytes(range(256)) * ((2 * PIECE_BYTES) // 256) + b"\x00\xff"  # three pieces, with bytes that are no text
    second.send(number, "the result", trace)
    assert first.receive(number, 1, AMPLE_S) == ("the result", trace)
    first.end()
    assert second.next_run() is None


def test_a_rank_waits_for_the_next_run(meetings: tuple[Meeting, Meeting]) -> None:
    first, second = meetings
    received: list[object] = []
    waiting = threading.Thread(target=lambda: received.append(second.next_run()))
    waiting.start()
    first.announce("late", 1.0)
    waiting.join()
    assert received == [(1, "late", 1.0)]


def test_a_missing_result_is_none(meetings: tuple[Meeting, Meeting]) -> None:
    first, _ = meetings
    assert first.receive(first.announce("job", 1.0), 1, 0.05) is None


def test_all_ranks_learn_of_a_failure(meetings: tuple[Meeting, Meeting]) -> None:
    first, second = meetings
    assert not first.is_stopped(1)
    second.stop(1)
    wait_until(lambda: first.is_stopped(1))  # the store confirms no message, so another rank can ask before it arrives
    assert not first.is_stopped(2)


def test_introductions_come_by_rank(meetings: tuple[Meeting, Meeting]) -> None:
    first, second = meetings
    second.introduce(host="b")
    first.introduce(host="a")
    assert first.introductions() == ({"host": "a"}, {"host": "b"})


def test_a_lost_store_is_one_message() -> None:
    pytest.importorskip("torch")
    launch = Launch(rank=1, ranks=2, local_rank=1, address="127.0.0.1", port=1, has_store=True, label="0/0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("profiler_kit.rendezvous.meeting.CONNECT_S", 0.5)
        with pytest.raises(KitError, match="the ranks cannot meet"), join(launch):
            pass


@pytest.mark.parametrize("failure", [None, KitError("no configuration was measured")])
def test_the_store_lives_until_the_others_know_the_end(
    failure: KitError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(meeting, "END_S", AMPLE_S)
    launch = launches()
    ends: list[object] = []
    with contextlib.suppress(KitError), join(launch[0]) as first, join(launch[1]) as second:
        first.introduce()

        def late() -> None:
            time.sleep(1.0)  # rank 0 leaves the block meanwhile
            ends.append(second.next_run())

        other = threading.Thread(target=late)
        other.start()
        if failure is not None:
            raise failure
    assert first._store.check(["end/1"]), "leaving the block waits for the other rank"
    other.join()
    assert ends == [None]


def test_ctrl_c_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    clock = SimulatedClock().install(monkeypatch)
    begin_ns = clock.now_ns
    with pytest.raises(KeyboardInterrupt), join(launches()[0]):
        raise KeyboardInterrupt
    assert clock.now_ns - begin_ns < 1_000_000_000


def test_rank_0_does_not_wait_forever_for_a_rank_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    clock = SimulatedClock().install(monkeypatch)
    with join(launches()[0]):
        begin_ns = clock.now_ns
    assert meeting.END_S <= (clock.now_ns - begin_ns) * 1e-9 < meeting.END_S + 1

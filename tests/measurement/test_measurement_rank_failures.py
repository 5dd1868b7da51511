"""The failure that caused those of the other ranks is found by codes."""

from __future__ import annotations

from profiler_kit.measurement.rank_runs import first_cause
from profiler_kit.records.runs import Failure

STOPPED = Failure(kind="crash", message="stopped", code="stopped")
LOST = Failure(kind="error", message="RuntimeError: [1] is gone", code="lost_peer")
CAUSE = Failure(kind="error", message="ValueError: nccl is a word of this message")


def test_a_rank_that_lost_its_peer_is_not_the_cause() -> None:
    cause = first_cause([STOPPED, LOST, CAUSE])
    assert cause is not None
    assert (cause.message, cause.kind) == (f"rank 2: {CAUSE.message}", "error")
    lost = first_cause([STOPPED, LOST])
    assert lost is not None
    assert lost.code == "lost_peer"


def test_one_message_of_all_ranks_concerns_them_all() -> None:
    assert first_cause([CAUSE, CAUSE]) == CAUSE
    assert first_cause([None, None]) is None

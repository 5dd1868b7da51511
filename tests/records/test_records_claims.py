"""Claims: their text, which older reports hold, and what they cover."""

from __future__ import annotations

import pytest

from profiler_kit.records.claims import (
    BUSY,
    HOST,
    HOST_CAUSES,
    IDLE,
    PEAK,
    WAITS,
    Claim,
    claim_of_text,
    idle_claims,
    kernel_claims,
    long_claims,
)
from profiler_kit.records.traces import IDLE_CAUSES


@pytest.mark.parametrize(
    "claim",
    [BUSY, HOST, IDLE, PEAK, *idle_claims("op dispatch"), *kernel_claims(["void f<a::b>(int)"]), Claim("busy", "module", ""),
     Claim("site", "function", "train.py(3): clip")],
    ids=str,
)  # fmt: skip
def test_the_text_of_a_claim_is_read_back(claim: Claim) -> None:
    assert claim_of_text(str(claim)) == claim


def test_a_module_covers_its_children_unless_it_is_a_place() -> None:
    assert Claim("busy", "module", "net").covers("module", "net.conv")
    assert not Claim("busy", "module", "net").covers("module", "network")
    assert not Claim("site", "module", "net").covers("module", "net.conv")


def test_the_host_is_waited_for_and_another_device_is_not() -> None:
    assert HOST.covers("cause", "python")
    assert not HOST.covers("cause", "communication")
    assert IDLE.covers("cause", "communication")
    assert not IDLE.covers("phase", "forward")
    assert BUSY.covers("phase", "forward")
    assert not BUSY.covers("cause", "python")


def test_an_unknown_text_covers_nothing() -> None:
    assert not claim_of_text("unknown").covers("kernel", "gemm")
    assert not claim_of_text("unknown").covers("cause", "python")


def test_waits_and_long_gaps_are_parts_of_the_time_that_the_host_causes() -> None:
    (long,) = long_claims("python")
    assert [cause for cause in IDLE_CAUSES if long.covers("cause", cause)] == ["python"]
    waits = {cause for cause in IDLE_CAUSES if WAITS.covers("cause", cause)}
    assert waits == {"synchronization", "op dispatch", "python", "launch latency"}
    assert waits < HOST_CAUSES
    for claim in (long, WAITS):
        assert claim_of_text(str(claim)) == claim
        assert not claim.covers("phase", "forward")

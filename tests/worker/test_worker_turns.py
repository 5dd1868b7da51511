"""Permission to use the device, and the load of the host over several turns."""

from __future__ import annotations

import io

import pytest
from simulated_clock import READING_NS, SimulatedClock

torch = pytest.importorskip("torch")

from profiler_kit.process.protocol import PREPARED  # noqa: E402
from profiler_kit.records.experiments import HostLoad  # noqa: E402
from profiler_kit.worker.environment import threads_limited  # noqa: E402
from profiler_kit.worker.turns import Gate, total_load  # noqa: E402


def test_a_gate_counts_the_time_for_which_it_was_open(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimulatedClock().install(monkeypatch)
    told: list[str] = []

    class Slow(io.BytesIO):
        def readline(self, *_: int) -> bytes:  # type: ignore[override]
            clock.sleep(0.2)
            return super().readline()

    gate = Gate(Slow(b"go\ngo\n"), told.append)
    assert gate.held_ns == 0
    gate.wait()
    clock.sleep(0.05)
    gate.wait()
    assert told == [PREPARED, PREPARED]
    assert gate.held_ns == pytest.approx(0.05e9, abs=10 * READING_NS)
    with pytest.raises(SystemExit, match="parent"):
        gate.wait()


def test_a_gate_hears_that_no_further_turn_follows() -> None:
    gate = Gate(io.BytesIO(b"go\nenough\n"))
    gate.wait()
    assert not gate.is_over
    gate.wait()
    assert gate.is_over


def test_a_gate_without_a_parent_is_open() -> None:
    gate = Gate()
    gate.wait()
    gate.wait()
    assert gate.held_ns > 0


def test_loads_of_turns_add_up() -> None:
    first = HostLoad(
        wall_ns=10, cores=4, own_cpu_ns=5, running_ns=4, waiting_ns=1, throttled_ns=0, start_loop_ns=7, end_loop_ns=8
    )
    second = HostLoad(wall_ns=20, cores=4, own_cpu_ns=6, running_ns=9, waiting_ns=0, start_loop_ns=9, end_loop_ns=11)
    assert total_load([first, second]) == HostLoad(
        wall_ns=30,
        cores=4,
        own_cpu_ns=11,
        running_ns=13,
        waiting_ns=1,
        throttled_ns=None,
        start_loop_ns=7,
        end_loop_ns=11,
    )
    assert total_load([first]) == first
    assert total_load([]) is None


def test_threads_are_limited_and_restored() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        with threads_limited(2):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 4
        with threads_limited(8):
            assert torch.get_num_threads() == 4, "never more than before"
        with threads_limited(None):
            assert torch.get_num_threads() == 4
        with threads_limited(2):
            torch.set_num_threads(3)  # as a model's file does
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)

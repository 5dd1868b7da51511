"""The end of a trace in a distributed job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.worker import tracing  # noqa: E402


@pytest.fixture
def job(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/job", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def waits_of_a_trace(monkeypatch: pytest.MonkeyPatch, steps: int) -> list[float]:
    """The waits of a trace of one recorded step, after the profiler has seen so many."""
    seconds: list[float] = []
    monkeypatch.setattr(tracing.time, "sleep", seconds.append)
    with tracing.profiled(False, 1) as profiler:
        for _ in range(steps):
            torch.ones(2).sum()
            profiler.step()
        torch.ones(2).sum()
    assert any(event.name == "aten::sum" for event in profiler.events())
    return seconds


STEPS = (1, 3)  # the end of the block ends the trace; the profiler has ended it before


@pytest.mark.parametrize("steps", STEPS)
def test_nothing_is_awaited_outside_of_a_job(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    assert waits_of_a_trace(monkeypatch, steps) == []


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("steps", STEPS)
def test_threads_of_gloo_get_time_for_their_last_events(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    assert waits_of_a_trace(monkeypatch, steps) == [tracing.COLLECTIVE_END_S]


@pytest.mark.usefixtures("job")
def test_a_thread_of_gloo_that_waits_for_a_core_is_awaited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tracing, "THREADS", tmp_path / "task")
    for number, (name, state) in enumerate((("python", "R"), ("pt_gloo_runloop", "R"), ("pt_gloo_runloop", "S"))):
        (tmp_path / "task" / str(number)).mkdir(parents=True)
        (tmp_path / "task" / str(number) / "comm").write_text(f"{name}\n")
        (tmp_path / "task" / str(number) / "stat").write_text(f"{number} (python) {state} 1 2 3")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            (tmp_path / "task" / "1" / "stat").write_text("1 (python) S 1 2 3")

    monkeypatch.setattr(tracing.time, "sleep", sleep)
    with tracing.profiled(False, 1) as profiler:
        profiler.step()
    assert waits == [tracing.COLLECTIVE_END_S] * 3

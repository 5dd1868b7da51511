"""What a recording does in a distributed job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.recording import distributed  # noqa: E402


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(distributed.time, "sleep", seconds.append)
    return seconds


@pytest.fixture
def job(tmp_path: object) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/job", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_nothing_is_awaited_outside_of_a_job(waits: list[float]) -> None:
    distributed.let_collectives_end()
    assert (waits, distributed.job_size()) == ([], 1)


@pytest.mark.usefixtures("job")
def test_threads_of_gloo_get_time_for_their_last_events(waits: list[float]) -> None:
    distributed.let_collectives_end()
    assert waits == [distributed.COLLECTIVE_END_S]

"""Common decisions of the ranks of a job, and of a process that is none."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from profiler_kit.worker.parallel import from_rank_0  # noqa: E402


def test_a_process_group_of_the_models_file_makes_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("No backend type associated with device type cpu")  # as of a group for NCCL alone

    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.broadcast", refuse)
    assert from_rank_0(3, True) == (3, True)

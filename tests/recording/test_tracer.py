"""Whether the tracer of CUDA is to be detached after a trace."""

from __future__ import annotations

import os

import pytest
import torch

from profiler_kit.recording.tracer import TEARDOWN, detach_tracer_afterwards


class Graph:
    """Stands for a CUDA graph, which needs a device."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEARDOWN, "")
    monkeypatch.delenv(TEARDOWN)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)


@pytest.mark.parametrize(("cuda", "expected"), [("13.0", "1"), ("12.6", "1"), ("12.4", None), (None, None)])
def test_it_is_detached_where_cuda_can_attach_again(
    cuda: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    detach_tracer_afterwards()
    assert os.environ.get(TEARDOWN) == expected


def test_it_stays_where_the_program_has_cuda_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    graph = Graph()
    detach_tracer_afterwards()
    assert graph is not None
    assert TEARDOWN not in os.environ


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv(TEARDOWN, "0")
    detach_tracer_afterwards()
    assert os.environ[TEARDOWN] == "0"

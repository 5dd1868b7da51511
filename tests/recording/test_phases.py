"""Phases of loops that know nothing of the tool."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from profiler_kit.meta.ownership import wrapped_calls
from profiler_kit.recording.phases import PhaseHooks
from profiler_kit.records.counts import Phase


class Log:
    """The phases in the order of their marks, without repetitions."""

    def __init__(self, *models: nn.Module) -> None:
        self.phases: list[Phase] = []
        self.inputs: list[tuple[int, ...]] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.hooks = PhaseHooks(models, self._mark, self._on_forward, self.optimizers.append)

    def _on_forward(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        self.inputs.append(tuple(args[0].shape))
        return True

    def _mark(self, phase: Phase) -> None:
        if self.phases[-1:] != [phase]:
            self.phases.append(phase)

    def __enter__(self) -> Log:
        self.hooks.install()
        self.hooks.start_step()
        return self

    def __exit__(self, *_: object) -> None:
        self.hooks.remove()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def test_training_step() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Log(model) as log:
        train(model, optimizer, torch.ones(4, 3))
    expected = ["other", "forward", "loss", "optimizer", "loss", "backward", "other", "optimizer", "other"]
    assert log.phases == expected  # the gradients are set to zero after the forward pass
    assert log.inputs == [(4, 3)]
    assert log.optimizers == [optimizer]


def test_loader() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Log(model) as log:
        for (x,) in DataLoader(TensorDataset(torch.ones(2, 3)), batch_size=2):
            train(model, optimizer, x)
    assert log.phases[:4] == ["other", "data", "other", "forward"]


def test_closure_of_an_optimizer() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3)).square().mean()
        loss.backward()
        return loss

    with Log(model) as log:
        optimizer.step(closure)
    assert log.phases == ["other", "optimizer", "forward", "loss", "backward", "optimizer", "other"]


def test_checkpointed_model_is_not_called_twice() -> None:
    model = nn.Linear(3, 2)
    with Log(model) as log:
        y = checkpoint(model, torch.ones(4, 3), use_reentrant=False)
        y.sum().backward()
    assert log.phases == ["other", "forward", "loss", "backward", "other"]
    assert len(log.inputs) == 1


def test_marked_phase() -> None:
    model = nn.Linear(3, 2)
    with Log(model) as log:
        with log.hooks.inside("transfer"):
            x = torch.ones(4, 3)
        with log.hooks.inside("loss"):
            model(x)
    assert log.phases == ["other", "transfer", "other", "loss", "forward", "loss", "other"]


def test_exception_in_forward() -> None:
    model = nn.Linear(3, 2)
    with Log(model) as log, pytest.raises(RuntimeError):
        model(torch.ones(4, 5))
    assert log.phases == ["other", "forward", "loss"]
    with Log(model) as log:
        model(torch.ones(4, 3))
    assert log.phases == ["other", "forward", "loss"]


def test_other_threads_do_not_count() -> None:
    model = nn.Linear(3, 2)
    with Log(model) as log:
        thread = threading.Thread(target=lambda: model(torch.ones(4, 3)).sum().backward())
        thread.start()
        thread.join()
    assert log.phases == ["other"]


def test_hooks_are_removed() -> None:
    model = nn.Linear(3, 2)
    backward, fetch = torch.autograd.backward, torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    with Log(model):
        assert torch.autograd.backward is not backward
    assert torch.autograd.backward is backward
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is fetch
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    log = Log(model)
    with log:
        pass
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(4, 3))
    assert log.phases == ["other"]


def test_calls_of_compiled_modules_can_be_wrapped_afterwards() -> None:
    compiled = torch.compile(nn.Linear(3, 2), backend="eager")
    with Log(nn.Linear(3, 2)):
        pass
    called: list[str] = []
    with wrapped_calls({id(compiled): "compiled"}, lambda path, call: (called.append(path), call())[1]):
        compiled(torch.ones(4, 3))
    assert called == ["compiled"]

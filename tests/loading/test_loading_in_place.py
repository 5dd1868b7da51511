"""Activations in place: who may, who would change the results, and that the model is left as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.loading import from_model
from profiler_kit.loading.in_place_activations import (
    EXTERNAL_INPUT,
    READ_AGAIN,
    RETURNED,
    in_place_candidates,
    run_in_place,
    unsafe_in_place_modules,
)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.drop = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.drop(self.act(self.fc(x)))
        return result


class Residual(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        result: Tensor = y + self.act(y)
        return result


class OfTheInput(Plain):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.fc(self.act(x))
        return result


class Returns(Plain):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.fc(x)
        return y, self.act(y)


class ThroughAView(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        half = y[:, :2]
        z: Tensor = self.act(y)
        return z[:, :2] + half


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Plain, None),
        (Residual, READ_AGAIN),
        (OfTheInput, EXTERNAL_INPUT),
        (Returns, RETURNED),
        (ThroughAView, READ_AGAIN),
    ],
)
def test_who_would_change_the_results(model: type[nn.Module], reason: str | None) -> None:
    target = from_model(model(), (torch.zeros(2, 4),), mode="infer", device="meta")
    assert unsafe_in_place_modules(target, ["act"]) == ({} if reason is None else {"act": reason})
    assert not target.model.act._forward_hooks  # type: ignore[union-attr]


@pytest.mark.parametrize("model", [Plain, Residual, ThroughAView])
def test_the_reasons_are_true(model: type[nn.Module]) -> None:
    torch.manual_seed(0)
    net, x = model().eval(), torch.randn(64, 4)  # some of it becomes negative in every column
    with torch.no_grad():
        before = net(x)
        with run_in_place(net, ["act"]):
            after = net(x)
    target = from_model(net, (x,), mode="infer", device="meta")
    assert torch.equal(before, after) == (not unsafe_in_place_modules(target, ["act"]))


def test_only_activations_are_switched_and_put_back() -> None:
    net = Plain()
    assert in_place_candidates(net) == ("act",)
    with run_in_place(net, ["act"]):
        assert net.act.inplace
    assert not net.act.inplace
    with pytest.raises(KeyError, match="out of it"), run_in_place(net, ["act"]):
        raise KeyError("out of it")
    assert not net.act.inplace

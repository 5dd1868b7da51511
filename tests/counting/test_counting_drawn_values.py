"""Counts of models whose work depends on weights or activations, where a real step would take too much memory or time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from profiler_kit import count
from profiler_kit.counting import count_target
from profiler_kit.errors import TargetError
from profiler_kit.loading import load
from profiler_kit.meta import drawn_values
from profiler_kit.records.target import TargetSpec

TOKENS, WIDTH, EXPERTS, CHOSEN = 64, 16, 8, 2


class Experts(nn.Module):
    """Each expert computes the tokens that chose it; how many, only the values know."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(CHOSEN)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            tokens, places = torch.where(chosen == number)
            out.index_add_(0, tokens, expert(x[tokens]) * weights[tokens, places, None])
        return out


class CountedExperts(Experts):
    """As `Experts`, by the number of tokens of each expert."""

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).softmax(-1).topk(CHOSEN).indices.flatten()
        sizes = torch.bincount(chosen, minlength=EXPERTS).tolist()
        parts = x.repeat_interleave(CHOSEN, 0)[chosen.argsort()].split(sizes)
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])


class Periods(nn.Module):
    """Folds a series by its strongest frequencies, in NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        frequencies = torch.fft.rfft(self.fc(x), dim=1).abs().mean((0, 2))
        periods = x.shape[1] // (frequencies.topk(2).indices.detach().cpu().numpy() + 1)
        return torch.stack([self.fc(x[:, : int(period)]).mean(1) for period in periods])


class Endless(nn.Module):
    """Waits for a value."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        while self.fc(x).sum().item() < 1e9:
            pass
        return x


def drawn(model: nn.Module, *shape: int) -> tuple[int, str]:
    """MACs of a forward pass of a model without values, and the line that reads a drawn one."""
    static = count(model.to("meta"), torch.zeros(*shape, device="meta"), mode="infer").static
    assert static is not None
    assert static.device == "meta"
    assert {bound.kind for bound in static.bounds} == {"drawn"}
    return static.forward.macs, static.bounds[0].where


@pytest.mark.parametrize("kind", [Experts, CountedExperts])
def test_each_token_has_its_experts(kind: type[nn.Module]) -> None:
    macs, where = drawn(kind(), TOKENS, WIDTH)
    products = TOKENS * WIDTH * EXPERTS + TOKENS * CHOSEN * WIDTH * WIDTH
    assert products <= macs <= 1.1 * products  # sums of weighted rows are counted beside the products
    assert where.startswith("tests/counting/test_counting_drawn_values.py:")


def test_values_reach_numpy_and_lie_in_their_range() -> None:
    macs, _ = drawn(Periods(), 2, 24, 4)
    assert macs > 2 * 24 * 16


def test_the_same_values_are_drawn_each_time() -> None:
    assert drawn(Periods(), 2, 24, 4) == drawn(Periods(), 2, 24, 4)


def test_a_loop_that_waits_for_a_value_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_values, "MAX_READS", 20)
    with pytest.raises(TargetError, match="data-dependent"):
        count(Endless().to("meta"), torch.zeros(2, 4, device="meta"))


def test_tensors_larger_than_the_limit_have_no_drawn_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_values, "MAX_DRAWN", 8)
    with pytest.raises(TargetError, match="data-dependent"):
        count(Experts().to("meta"), torch.zeros(TOKENS, WIDTH, device="meta"))


SLOW = """
import time
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = self.fc(x)
        while type(x) is torch.Tensor and x.device.type == "cpu":
            time.sleep(0.01)
        return self.fc(x) if x.abs().sum().item() >= 0 else x

example_inputs = torch.zeros(2, 4)
"""


@pytest.mark.bad_hints  # of the error on meta tensors: the program waits for ever on real ones
def test_a_real_step_that_takes_long_is_not_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "net.py"
    file.write_text(SLOW)
    monkeypatch.setattr("profiler_kit.loading.tensor_kinds.REAL_STEP_S", 0.2)
    static = count_target(load(TargetSpec(spec=str(file), loss="sum")))
    assert (static.device, static.forward.macs) == ("meta", 2 * 2 * 16)
    assert [bound.kind for bound in static.bounds] == ["drawn"]

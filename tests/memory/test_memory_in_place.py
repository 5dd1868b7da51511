"""Ops that run in place without a dispatch mode: formulas of gradients, and biases of linear layers. Fused RMS normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from profiler_kit.devices.registry import DEFAULT_DEVICE
from profiler_kit.loading import from_model
from profiler_kit.memory.log import MemoryLog
from profiler_kit.memory.steps import Setup, record_steps

ROWS, WIDTH = 6, 8
NBYTES = 4 * ROWS * WIDTH


class Applied(nn.Module):
    """A function of a matrix that autograd made, and of indices."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.empty(ROWS, WIDTH, device="meta"))

    def forward(self, indices: Tensor) -> Tensor:
        """The function's result."""
        return self.function(self.weight * 1, indices)


def log_of(function: Callable[[Tensor, Tensor], Tensor]) -> MemoryLog:
    indices = torch.empty(ROWS, WIDTH, dtype=torch.long, device="meta")
    return record_steps(from_model(Applied(function), (indices,), loss="sum", device="meta"), DEFAULT_DEVICE, Setup())


def allocated(log: MemoryLog, phase: str, nbytes: int) -> list[str]:
    """The ops that allocate tensors of `nbytes` in a phase of the last step."""
    events = log.events[log.steps[-1] :]
    return [lifetime.op for change, lifetime in events if change == nbytes and lifetime.phase == phase]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.gather(1, i),
        lambda x, i: x[i[0]],
        lambda x, i: x.max(1)[0],
        lambda x, i: x.topk(3)[0],
        lambda x, i: x.index_select(0, i[0]),
        lambda x, i: x.take(i[0]),
    ],
    ids=["gather", "index", "max", "topk", "index_select", "take"],
)
def test_a_gradient_is_scattered_into_its_zeros(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    zeros, gradient = allocated(log_of(function), "backward", NBYTES)
    older = ("aten.zeros",) if torch.__version__ < (2, 13) else ()
    assert zeros in ("aten.new_zeros", "aten.zeros_like", *older)
    assert gradient == "aten.mul"  # of `weight * 1`, which follows


def test_binary_cross_entropy_of_logits_overwrites_its_sigmoid() -> None:
    log = log_of(lambda x, i: F.binary_cross_entropy_with_logits(x, torch.empty_like(x)))
    assert allocated(log, "backward", NBYTES) == ["aten.sigmoid", "aten.mul"]


class Doubled(torch.autograd.Function):
    """A formula of the user, which adds into new tensors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The double of the input."""
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The double of the gradient, by two new tensors."""
        zeros = torch.zeros_like(gradients[0])
        indices = torch.empty(gradients[0].shape, dtype=torch.long, device="meta")
        return zeros.scatter_add(1, indices, gradients[0])


def test_the_users_own_formulas_run_as_they_are() -> None:
    apply: Callable[[Tensor], Tensor] = Doubled.apply
    log = log_of(lambda x, i: apply(x))
    assert "aten.scatter_add" in allocated(log, "backward", NBYTES)


@pytest.mark.parametrize("is_strided", [False, True])
def test_the_bias_of_a_linear_layer_needs_no_second_result(is_strided: bool) -> None:
    layer = nn.Linear(WIDTH, WIDTH, device="meta")
    x = torch.empty(3, 2, WIDTH, device="meta")
    x = x.transpose(0, 1) if is_strided else x
    log = record_steps(from_model(layer, (x,), loss="sum", device="meta"), DEFAULT_DEVICE, Setup())
    assert allocated(log, "forward", x.nbytes) == (["aten.clone", "aten.mm"] if is_strided else ["aten.addmm"])


class Normalized(nn.Module):
    """A matrix, normalized by rows."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, dtype=dtype, device="meta")
        self.rows = nn.Parameter(torch.empty(ROWS, WIDTH, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        """The normalized sum of input and rows."""
        out: Tensor = self.norm(x + self.rows)
        return out


def saved_bytes(dtype: torch.dtype) -> int:
    target = from_model(Normalized(dtype), (torch.empty(ROWS, WIDTH, device="meta"),), loss="sum", device="meta")
    log = record_steps(target, DEFAULT_DEVICE, Setup())
    live = log.live_at(log.position_of("after loss") or 0)
    return sum(lifetime.nbytes for lifetime in live if lifetime.savers is not None and lifetime.category is None)


def test_rms_normalization_saves_its_input_and_a_number_per_row() -> None:
    pytest.importorskip("torch", "2.8")
    assert saved_bytes(torch.float32) == NBYTES + 4 * ROWS


def test_rms_normalization_with_a_weight_of_another_type_is_not_fused() -> None:
    assert saved_bytes(torch.float64) > NBYTES + 4 * ROWS

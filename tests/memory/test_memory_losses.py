"""The storage of a reduced loss, and norms under autocast: what a real kernel keeps and what the simulation predicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from profiler_kit.devices.cards.data_center import H100
from profiler_kit.loading import from_model
from profiler_kit.memory import Setup, simulate, simulate_step
from profiler_kit.meta.emulation import emulated
from profiler_kit.meta.meta_kernels import replacement_kernel
from profiler_kit.records.calls import OpCall

LOSSES = (
    F.mse_loss,
    F.smooth_l1_loss,
    F.soft_margin_loss,
    F.binary_cross_entropy,
    F.huber_loss,
    F.l1_loss,
    F.binary_cross_entropy_with_logits,
)


class Libraries:
    """Library calls, which this test does not read."""

    def use_workspace(self, call: OpCall) -> None:
        """Ignore a call."""


def predicted_storage(loss: Callable[..., Tensor], reduction: str) -> int:
    """Bytes of the storage of the loss on meta tensors, from the kernels of the simulation."""
    op = {
        F.mse_loss: torch.ops.aten.mse_loss.default,
        F.smooth_l1_loss: torch.ops.aten.smooth_l1_loss.default,
        F.soft_margin_loss: torch.ops.aten.soft_margin_loss.default,
        F.binary_cross_entropy: torch.ops.aten.binary_cross_entropy.default,
    }.get(loss)
    x, y = (torch.rand(1000, device="meta") for _ in range(2))
    kernel = None if op is None else replacement_kernel(op, (x, y))
    if kernel is None:
        return loss(x, y, reduction=reduction).untyped_storage().nbytes()
    code = {"none": 0, "mean": 1, "sum": 2}[reduction]
    out: Tensor = kernel(x, y, reduction=code)
    return out.untyped_storage().nbytes()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_reduced_loss_keeps_the_storage_that_the_real_kernel_keeps(
    loss: Callable[..., Tensor], reduction: str
) -> None:
    x, y = torch.rand(1000), torch.rand(1000)
    assert predicted_storage(loss, reduction) == loss(x, y, reduction=reduction).untyped_storage().nbytes()


@pytest.mark.parametrize(("loss", "held"), [(F.mse_loss, 1), (F.smooth_l1_loss, 1), (F.huber_loss, 0)])
def test_the_loss_is_alive_after_forward_in_every_step(loss: Callable[..., Tensor], held: int) -> None:
    x = torch.empty(64, 1000, device="meta")
    target = from_model(nn.Linear(1000, 1000), x, labels=x, loss_fn=loss, optimizer="sgd", device="meta")
    summed = from_model(
        nn.Linear(1000, 1000), x, labels=x, loss_fn=lambda o, _: o.sum(), optimizer="sgd", device="meta"
    )
    after = [simulate(each).after_forward_bytes or 0 for each in (target, summed)]
    assert abs(after[0] - after[1] - held * x.nbytes) <= 8


@pytest.mark.parametrize(
    "norm",
    [torch.linalg.vector_norm, torch.linalg.norm, torch.linalg.matrix_norm, Tensor.norm],
    ids=lambda f: f.__name__,
)
def test_norms_under_autocast_are_in_float32(norm: Callable[[Tensor], Tensor]) -> None:
    x = torch.empty(16, 16, device="meta", dtype=torch.bfloat16)
    with emulated(H100, Libraries(), lambda _: None) as emulation, emulation, emulation.autocast(torch.bfloat16):  # type: ignore[arg-type]
        assert norm(x).dtype is torch.float32
    assert norm(x).dtype is torch.bfloat16


def ctc(output: Tensor) -> Tensor:
    """The connectionist loss of 4 sequences."""
    targets = torch.ones(4, 10, dtype=torch.long, device=output.device)
    return F.ctc_loss(output.log_softmax(-1).transpose(0, 1), targets, (50,) * 4, (10,) * 4)


def margin(output: Tensor) -> Tensor:
    """Both losses of margins of several classes."""
    rows = output.flatten(0, 1)
    classes = torch.zeros(len(rows), dtype=torch.long, device=output.device)
    return F.multi_margin_loss(rows, classes) + F.multilabel_margin_loss(rows, torch.zeros_like(rows).long())


@pytest.mark.parametrize("loss", [ctc, margin])
def test_a_loss_whose_gradient_has_no_meta_kernel_is_simulated_without_data(loss: Callable[[Tensor], Tensor]) -> None:
    target = from_model(nn.Linear(20, 30), (torch.randn(4, 50, 20),), loss_fn=loss)
    estimate, calls = simulate_step(target, H100, Setup(records_calls=True))
    assert estimate.peak_bytes > 0
    assert {"aten.addmm", "aten.mm"} & {each.call.op for each in calls}

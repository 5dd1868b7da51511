"""The memory estimate: what is held when, by hand for small nets and by its laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from profiler_kit.counting import count_target
from profiler_kit.devices.cards.data_center import H100
from profiler_kit.devices.device import Device
from profiler_kit.loading import from_model
from profiler_kit.memory import simulate
from profiler_kit.meta import garbage_collection
from profiler_kit.records.counts import MemoryEstimate

B, D, H = 16, 32, 64
CATEGORIES = ("parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries")


def memory(model: nn.Module, x: Tensor, *, device: Device = H100, **options: Any) -> MemoryEstimate:
    options = {"loss": "sum", "optimizer": "sgd", **options}
    if options.get("mode") == "infer":
        options = {"mode": "infer"}
    return simulate(from_model(model, (x,), device="meta", **options), device)


def at(estimate: MemoryEstimate, name: str) -> int:
    return next(point.bytes for point in estimate.timeline if point.at == name)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, D)), torch.zeros(B, D)),
    "dropout": lambda: (nn.Sequential(nn.Linear(D, H), nn.Dropout(0.5), nn.Linear(H, D)), torch.zeros(B, D)),
    "in place": lambda: (nn.Sequential(nn.Linear(D, H), nn.ReLU(inplace=True), nn.Linear(H, D)), torch.zeros(B, D)),
    "norm": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.zeros(B, 3, 8, 8)),
    "lstm": lambda: (nn.LSTM(4, 4), torch.zeros(5, 2, 4)),
    "encoder": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.zeros(2, 5, 8)),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", MODELS)
def test_categories_sum_to_the_peak(name: str, optimizer: str) -> None:
    model, x = MODELS[name]()
    estimate = memory(model, x, optimizer=optimizer)
    assert sum(getattr(estimate.categories, category) for category in CATEGORIES) == estimate.peak_bytes
    assert estimate.peak_bytes == max(point.bytes for point in estimate.timeline)
    assert estimate.categories.workspace is None  # not known without a device
    assert estimate.categories.parameters == sum(
        tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers())
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_timeline_is_in_order(name: str) -> None:
    estimate = memory(*MODELS[name]())
    names = [point.at for point in estimate.timeline]
    marks = ["before forward", "after forward", "after loss", "after backward", "after optimizer"]
    assert [each for each in names if each in marks] == marks
    assert estimate.peak_at in names


def test_a_linear_layer_by_hand() -> None:
    params, x, y, loss = 4 * (D * H + H), 4 * B * D, 4 * B * H, 4
    estimate = memory(nn.Linear(D, H), torch.zeros(B, D))
    assert at(estimate, "before forward") == params + x
    assert at(estimate, "after forward") == params + x + y
    assert at(estimate, "after loss") == params + x + y + loss
    assert at(estimate, "after backward") == 2 * params + x + y + loss
    assert at(estimate, "after optimizer") == params + x + y + loss


def test_adam_keeps_two_numbers_per_parameter() -> None:
    model = nn.Linear(D, H)
    plain, adam = (memory(model, torch.zeros(B, D), optimizer=name) for name in ("sgd", "adam"))
    assert adam.categories.optimizer_state == 2 * 4 * (D * H + H)
    assert plain.categories.optimizer_state in (0, 4 * (D * H + H))


def test_a_dropout_mask_is_kept_for_backward() -> None:
    class Plain(nn.Module):
        def __init__(self, p: float) -> None:
            super().__init__()
            self.inner = nn.Linear(D, H)
            self.p = p

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(self.inner(x), self.p)

    x = torch.zeros(B, D)
    without, with_mask = (count_target(from_model(Plain(p), (x,), loss="sum")) for p in (0.0, 0.5))
    assert with_mask.saved_bytes > without.saved_bytes == 0


def test_views_of_a_storage_are_kept_once() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(D, H)

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x).exp()  # kept by exp, and again, as views, by the products below
            left, right = y.chunk(2, dim=1)
            return left * right + y.view(2, -1)[0].sum()

    static = count_target(from_model(Views(), (torch.zeros(B, D),), loss="sum"))
    assert static.saved_bytes == 4 * B * H


def test_in_place_relu_keeps_no_second_tensor() -> None:
    class Net(nn.Module):
        def __init__(self, inplace: bool) -> None:
            super().__init__()
            self.parts = nn.Sequential(nn.Linear(D, H), nn.ReLU(inplace), nn.Linear(H, D))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.parts(x)
            return out

    x = torch.zeros(B, D)
    one, other = (count_target(from_model(Net(inplace), (x,), loss="sum")) for inplace in (False, True))
    assert one.saved_bytes == other.saved_bytes == 4 * B * H


def test_infer_mode_holds_no_gradients() -> None:
    estimate = memory(nn.Sequential(nn.Linear(D, H), nn.Linear(H, D)), torch.zeros(B, D), mode="infer")
    parts = estimate.categories
    assert (parts.gradients, parts.optimizer_state, parts.saved_activations) == (0, 0, 0)
    assert estimate.peak_bytes == 4 * (2 * D * H + H + D) + 4 * B * D + 4 * B * H + 4 * B * D
    assert [point.at for point in estimate.timeline if point.at.endswith("forward")] == [
        "before forward",
        "after forward",
    ]


def test_checkpointing_lowers_the_peak() -> None:
    class Deep(nn.Module):
        def __init__(self, recompute: bool) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(D, 8 * D), nn.GELU(), nn.Linear(8 * D, D)) for _ in range(6)
            )
            self.recompute = recompute

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
            return x

    x = torch.zeros(512, D)
    kept, recomputed = (memory(Deep(recompute), x) for recompute in (False, True))
    assert recomputed.peak_bytes < 0.6 * kept.peak_bytes


def test_the_estimate_is_the_same_every_time() -> None:
    model, x = MODELS["encoder"]()
    target = from_model(model, (x,), loss="sum", optimizer="adam")
    assert simulate(target) == simulate(target)


class Flexible(nn.Module):
    """Attention over a projection, by flex_attention or by hand."""

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.projection = nn.Linear(D, 3 * D, bias=False)
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projection(x).view(2, B, 3, 2, D // 2).permute(2, 0, 3, 1, 4)
        return self.attend(q, k, v)


def test_flex_attention_keeps_its_scores_to_itself() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    if not hasattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"):
        pytest.skip("this torch compiles flex_attention first")
    target = from_model(Flexible(flex.flex_attention), (torch.zeros(2, B, D),), mode="infer")
    estimate = simulate(target)
    assert estimate.notes == ()
    tokens = 2 * B * 4
    projected, out = tokens * 3 * D, tokens * D
    held = 4 * 3 * D * D + tokens * D + projected + out  # weights, input, projection, output
    statistics = estimate.peak_bytes - held  # of the rows of the scores, and a mask of one block
    assert 0 < statistics < 4 * 2 * 2 * B * B  # the scores themselves


def test_flex_attention_trains() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    if not hasattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"):
        pytest.skip("this torch compiles flex_attention first")
    estimate = memory(Flexible(flex.flex_attention), torch.zeros(2, B, D))
    assert estimate.peak_bytes == sum(getattr(estimate.categories, category) for category in CATEGORIES)
    assert estimate.categories.saved_activations > 0


@pytest.mark.parametrize("name", MODELS)
def test_an_estimate_does_not_depend_on_how_often_garbage_is_collected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = memory(*MODELS[name]())
    monkeypatch.setattr(garbage_collection, "_MAX_NEW_OBJECTS", 0)
    assert memory(*MODELS[name]()) == rare

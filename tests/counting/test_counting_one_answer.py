"""One answer: the same figures on real, meta and fake tensors, with and without gradients, in training and in evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from counting_ops import Counted, counted
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

BATCH, SIDE, WIDTH, HEADS, INNER, TOKENS = 2, 8, 8, 2, 16, 5
KINDS = ("cpu", "meta", "fake", *(("cuda",) if torch.cuda.is_available() else ()))


class Block(nn.Module):
    """As in a vision transformer: attention without weights wanted, an MLP, norms first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class Vision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))
        return out


class Language(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(11, WIDTH)
        self.layer = kind(WIDTH, 6, 2, batch_first=True, bidirectional=True, **options)
        self.head = nn.Linear(2 * options.get("proj_size", 6), 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(self.words(x))[0])
        return out


class Separable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Conv2d(3, 6, 3, groups=3, padding=1, bias=False)
        self.point = nn.Conv2d(6, 8, 1, bias=False)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(self.norm(self.point(self.deep(x)))).mean((2, 3))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def images() -> Tensor:
    return torch.rand(BATCH, 3, SIDE, SIDE)


def words() -> Tensor:
    return torch.arange(BATCH * TOKENS).reshape(BATCH, TOKENS)


def sequences() -> Tensor:
    return torch.rand(BATCH, TOKENS, WIDTH)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "vision transformer": (Vision, images),
    "encoder": (encoder, sequences),
    "LSTM": (lambda: Language(nn.LSTM), words),
    "LSTM, projected": (lambda: Language(nn.LSTM, proj_size=4), words),
    "GRU": (lambda: Language(nn.GRU), words),
    "depthwise": (Separable, images),
}


@functools.cache
def count_on(kind: str, name: str, *, train: bool, gradients: bool) -> Counted:
    build, feed = MODELS[name]
    model, x = build().train(train), feed()
    if kind in ("meta", "cuda"):
        model, x = model.to(kind), x.to(kind)
    if kind == "fake":
        mode = FakeTensorMode()
        for module in model.modules():
            for own, parameter in list(module._parameters.items()):
                if parameter is not None:
                    module._parameters[own] = nn.Parameter(mode.from_tensor(parameter.detach()))
        with mode, torch.set_grad_enabled(gradients):
            return counted(model, mode.from_tensor(x), backward=gradients)
    with torch.set_grad_enabled(gradients):
        return counted(model, x, backward=gradients)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward_are_the_same_everywhere(name: str) -> None:
    runs = {
        (kind, train, gradients): count_on(kind, name, train=train, gradients=gradients)
        for kind in KINDS
        for train in (True, False)
        for gradients in (True, False)
        if not (kind == "cuda" and gradients and not train)  # cuDNN's recurrent layers have no backward in evaluation
    }
    for where, run in runs.items():
        assert run.uncounted == (), where
    forward = {where: run.forward.macs for where, run in runs.items()}
    assert len(set(forward.values())) == 1, forward
    flops = {where: run.forward.flops for where, run in runs.items()}
    if name in ("GRU", "LSTM, projected"):
        # cells on a CPU: of a transposed sequence, linear adds its bias by an op of its own
        assert max(flops.values()) - min(flops.values()) <= 0.02 * min(flops.values()), flops
    else:
        assert len(set(flops.values())) == 1, flops
    backward = {where: run.backward.macs for where, run in runs.items() if where[2]}
    assert len(set(backward.values())) == 1, backward
    assert next(iter(backward.values())) > 0


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["vision transformer", "encoder", "depthwise"])
def test_pointwise_work_of_backward_is_the_same_too(name: str) -> None:
    flops = {kind: count_on(kind, name, train=True, gradients=True).backward.flops for kind in KINDS}
    assert len(set(flops.values())) == 1, flops


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_fused_paths_were_among_them() -> None:
    def ops(name: str, train: bool, gradients: bool) -> set[str]:
        return {op.op for op in count_on("cpu", name, train=train, gradients=gradients).ops}

    assert "aten._transformer_encoder_layer_fwd" in ops("encoder", False, False)
    assert "aten._native_multi_head_attention" in ops("vision transformer", False, False)
    assert "aten._scaled_dot_product_flash_attention_for_cpu_backward" in ops("vision transformer", True, True)
    if torch.backends.mkldnn.is_available():
        assert "aten.mkldnn_rnn_layer_backward" in ops("LSTM", True, True)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fused_path_with_a_padding_mask_counts_as_padded() -> None:
    """The encoder's fast path leaves out what is padded, as a nested tensor; it counts as the dense one does."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True), 2).eval()
    x, mask = sequences(), torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    mask[0, 3:] = True
    with torch.no_grad():
        nested = counted(model, x, src_key_padding_mask=mask)
    dense = counted(model.train(), x, src_key_padding_mask=mask)
    assert any(op.op == "aten._nested_tensor_from_mask" for op in nested.ops)
    assert nested.uncounted == dense.uncounted == ()
    assert nested.forward.macs == dense.forward.macs

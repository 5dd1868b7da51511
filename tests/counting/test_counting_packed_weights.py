"""Weights that are no parameters: packed objects of quantized layers and 8-bit buffers count in every figure."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from profiler_kit import count
from profiler_kit.meta.packed_weights import packed_bytes

quantization = pytest.importorskip("torch.ao.quantization")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        torch.backends.quantized.engine in ("none", ""), reason="this torch has no engine for quantized layers"
    ),
]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(8, 12, 2, bidirectional=True)
        self.cell = nn.LSTMCell(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.cell(self.layers(x)[0][0])[0]
        return out


class IntegerLinear(nn.Module):
    """As the weight-only quantized layers of other libraries: an int8 buffer and float scales."""

    weight: Tensor
    scales: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(5, 8, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight.to(x.dtype)) * self.scales


def dynamic(model: nn.Module) -> nn.Module:
    quantized: nn.Module = quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM, nn.LSTMCell}, dtype=torch.qint8)
    return quantized


def parameters(model: nn.Module) -> tuple[int, int]:
    """Parameters, and the bytes of int8 matrices with float32 biases."""
    matrices = sum(p.numel() for p in model.parameters() if p.dim() > 1)
    biases = sum(p.numel() for p in model.parameters() if p.dim() == 1)
    return matrices + biases, matrices + 4 * biases


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), lambda: torch.rand(2, 64)),
    "recurrent": (Recurrent, lambda: torch.rand(5, 2, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_packed_weights_are_parameters_in_every_figure(name: str) -> None:
    make, inputs = CASES[name]
    model, x = make(), inputs()
    expected, nbytes = parameters(model)
    plain = count(model, x, mode="infer").static
    quantized = count(dynamic(model), x, mode="infer").static
    assert plain is not None
    assert quantized is not None
    assert (quantized.params, quantized.param_bytes, quantized.trainable_params) == (expected, nbytes, 0)
    assert quantized.params == plain.params
    assert sum(node.params for node in quantized.modules) == expected
    assert quantized.memory is not None
    assert quantized.memory.categories.parameters == nbytes
    assert quantized.forward.macs == plain.forward.macs
    assert quantized.forward.read_bytes >= nbytes  # each weight is read once
    assert not quantized.uncounted


def test_a_shared_packed_object_counts_once() -> None:
    layer = next(dynamic(nn.Sequential(nn.Linear(4, 4))).children())
    both = nn.Sequential(layer, layer)
    assert packed_bytes(both) == 4 * 4 + 4 * 4
    static = count(both, torch.rand(2, 4), mode="infer").static
    assert static is not None
    assert static.params == 20


def test_an_integer_weight_buffer_is_a_parameter() -> None:
    static = count(nn.Sequential(IntegerLinear()), torch.rand(2, 8), mode="infer").static
    assert static is not None
    assert (static.params, static.param_bytes) == (40, 40)
    memory = static.memory
    assert memory is not None
    assert memory.categories.parameters == 40 + 5 * 4
    assert packed_bytes(IntegerLinear()) == 0

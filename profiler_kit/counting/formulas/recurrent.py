"""Recurrent layers that reach dispatch as one fused op. On meta tensors they run as the matrix products they are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from profiler_kit.counting.arithmetic import contraction, numel, per_element
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def matrices(weights: Sequence[TensorSpec]) -> int:
    """Elements of all weight matrices; each meets every time step of every sequence once. Biases are free."""
    return sum(numel(weight) for weight in weights if len(weight.shape) == 2)


def steps(x: TensorSpec) -> int:
    """Time steps of all sequences together. Shapes: x (t, b, i), (b, t, i) or, packed, (sum of lengths, i)."""
    return prod(x.shape[:-1])


@formula("aten.mkldnn_rnn_layer")
def mkldnn_rnn_layer(x: TensorSpec, w_ih: TensorSpec, w_hh: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """One layer and direction of an LSTM: the gates' two products; gate arithmetic not counted."""
    return contraction(steps(x) * matrices((w_ih, w_hh)), x)


@formula("aten.mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(x: TensorSpec, w_ih: TensorSpec, w_hh: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """Two products for each of forward's; the kernel makes all gradients whether or not they are asked for."""
    return contraction(2 * steps(x) * matrices((w_ih, w_hh)), x)


@formula("aten._cudnn_rnn", "aten.miopen_rnn")
def cudnn_rnn(x: TensorSpec, weights: Sequence[TensorSpec], *_: Any, out: Any, **__: Any) -> Cost:
    """All layers and directions of an RNN, LSTM or GRU; gate arithmetic not counted."""
    return contraction(steps(x) * matrices(weights), x)


@formula("aten._cudnn_rnn_backward", "aten.miopen_rnn_backward")
def cudnn_rnn_backward(x: TensorSpec, weights: Sequence[TensorSpec], *rest: Any, out: Any, **_: Any) -> Cost:
    """The data gradient always, the weight gradient where the last of the output mask asks for it."""
    mask = rest[-1] if rest and isinstance(rest[-1], Sequence) else (True, True, True, True)
    return contraction(steps(x) * matrices(weights) * (1 + bool(mask[-1])), x)


@formula("aten._thnn_fused_lstm_cell", "aten._thnn_fused_gru_cell")
def fused_cell(gates: TensorSpec, hidden_gates: TensorSpec, state: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """Gate arithmetic: an add and an activation per gate element, four per state element."""
    return per_element(gates, 2) + per_element(state, 4)


@formula("aten._thnn_fused_lstm_cell_backward_impl", "aten._thnn_fused_gru_cell_backward")
def fused_cell_backward(*args: Any, out: Sequence[TensorSpec | None], **_: Any) -> Cost:
    """Four per element of the gates' gradient."""
    return per_element(next((spec for spec in out if spec is not None), None), 4)

"""Recurrent layers that are one fused op: the cost is that of their cells in every time step.

Every time step of every sequence uses each weight matrix once. Gate arithmetic per state element follows PyTorch's cells:
LSTM 13 (four adds of the two products, four activations, f c, i g, their sum, tanh, product with o), GRU 10, plain RNN 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from profiler_kit.counting.arithmetic import contraction, needed_gradients, numel, per_argument
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec

# by cuDNN and oneDNN mode: RNN with ReLU, RNN with tanh, LSTM, GRU
GATE_FLOPS: Final = (2, 2, 13, 10)
GATE_BACKWARD_FLOPS: Final = (1, 1, 11, 10)


def matrix_elements(weights: Sequence[TensorSpec | None]) -> int:
    """Elements of all weight matrices, including projections: the MACs per time step. Biases are free."""
    return sum(numel(weight) for weight in weights if weight is not None and len(weight.shape) == 2)


def steps(x: TensorSpec) -> int:
    """Sum of time steps over all sequences. Shapes: x (t, b, i), (b, t, i) or, packed, (sum of lengths, i)."""
    return prod(x.shape[:-1])


@formula("aten.mkldnn_rnn_layer")
def mkldnn_rnn_layer(
    x: TensorSpec, w_ih: TensorSpec, w_hh: TensorSpec, b_ih: Any, b_hh: Any, hx: Any, cx: Any, reverse: bool,
    batch_sizes: Any, mode: int, hidden_size: int, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """One layer and direction."""
    gates = Cost(flops=steps(x) * hidden_size * GATE_FLOPS[mode])
    return contraction(steps(x) * matrix_elements((w_ih, w_hh)), x) + gates


@formula("aten.mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(
    x: TensorSpec, w_ih: TensorSpec, w_hh: TensorSpec, b_ih: Any, b_hh: Any, hx: TensorSpec, cx: Any, output: Any,
    hy: Any, cy: Any, grad_output: Any, grad_hy: Any, grad_cy: Any, reverse: bool, mode: int, hidden_size: int,
    *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """The needed gradients: of the input, of both weights, and of the state before each time step.

    Counts: the state before the first step only if the initial state needs a gradient. Bias gradients are free.
    """
    needed = needed_gradients("MkldnnRnnLayer", 6)  # of x, w_ih, w_hh, two biases, hx
    state_steps = steps(x) - (0 if needed[5] else hx.shape[-2])
    macs = steps(x) * numel(w_ih) * (needed[0] + needed[1]) + (steps(x) * needed[2] + state_steps) * numel(w_hh)
    return contraction(macs, x) + Cost(flops=steps(x) * hidden_size * GATE_BACKWARD_FLOPS[mode])


@formula("aten._cudnn_rnn")
def cudnn_rnn(
    x: TensorSpec, weights: Sequence[TensorSpec], stride: int, buffer: Any, hx: TensorSpec, cx: Any, mode: int,
    hidden_size: int, proj_size: int, num_layers: int, batch_first: bool, dropout: float, train: bool,
    bidirectional: bool, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """All layers and directions of an RNN, LSTM or GRU."""
    states = steps(x) * hidden_size * num_layers * (1 + bidirectional)
    return contraction(steps(x) * matrix_elements(weights), x) + Cost(flops=states * GATE_FLOPS[mode])


@formula("aten.miopen_rnn")
def miopen_rnn(x: TensorSpec, weights: Sequence[TensorSpec], stride: int, *others: Any, out: Any, **__: Any) -> Cost:
    """As `cudnn_rnn`, without buffer and projection."""
    return cudnn_rnn(x, weights, stride, None, *others[:4], 0, *others[4:], out=out)


@formula("aten._cudnn_rnn_backward")
def cudnn_rnn_backward(
    x: TensorSpec, weights: Sequence[TensorSpec], stride: int, buffer: Any, hx: TensorSpec, cx: Any, output: Any,
    grad_output: Any, grad_hy: Any, grad_cy: Any, mode: int, hidden_size: int, proj_size: int, num_layers: int,
    batch_first: bool, dropout: float, train: bool, bidirectional: bool, batch_sizes: Any, dropout_state: Any,
    reserve: Any, output_mask: Sequence[bool], *_: Any, out: Any,
) -> Cost:  # fmt: skip
    """The needed gradients, as in `mkldnn_rnn_layer_backward`, over all layers and directions.

    `output_mask`: input, hx, cx, weights. Each layer and direction has a matrix for the input, one for the state, and
    optionally one for a projection.
    """
    directions = 1 + bidirectional
    matrices = [weight for weight in weights if len(weight.shape) == 2]
    per_direction = len(matrices) // (num_layers * directions)
    macs = steps(x) * matrix_elements(matrices) * (1 + bool(output_mask[-1]))
    if not output_mask[0]:
        macs -= steps(x) * matrix_elements(matrices[::per_direction][:directions])
    if not output_mask[1]:
        macs -= hx.shape[-2] * matrix_elements(matrices[1::per_direction])
    gates = steps(x) * hidden_size * num_layers * directions * GATE_BACKWARD_FLOPS[mode]
    return contraction(macs, x) + Cost(flops=gates)


@formula("aten.miopen_rnn_backward")
def miopen_rnn_backward(x: TensorSpec, weights: Sequence[TensorSpec], *others: Any, out: Any) -> Cost:
    """As `cudnn_rnn_backward`, without projection."""
    return cudnn_rnn_backward(x, weights, *others[:10], 0, *others[10:], out=out)


# gate arithmetic of a cell, per element of its state; the products are separate ops
formula("aten._thnn_fused_lstm_cell")(per_argument(2, GATE_FLOPS[2]))  # of cx
formula("aten._thnn_fused_gru_cell")(per_argument(2, GATE_FLOPS[3]))  # of hx
# of cx
formula("aten._thnn_fused_lstm_cell_backward_impl", "aten._thnn_fused_lstm_cell_backward")(
    per_argument(2, GATE_BACKWARD_FLOPS[2])
)
formula("aten._thnn_fused_gru_cell_backward")(per_argument(0, GATE_BACKWARD_FLOPS[3]))  # of grad_hy


@formula("aten._lstm_mps")
def lstm_mps(
    x: TensorSpec, hx: Sequence[TensorSpec], params: Sequence[TensorSpec], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """All layers and directions of an LSTM on Apple devices."""
    states = steps(x) * hx[0].shape[-1] * num_layers * (1 + bidirectional)
    return contraction(steps(x) * matrix_elements(params), x) + Cost(flops=states * GATE_FLOPS[2])

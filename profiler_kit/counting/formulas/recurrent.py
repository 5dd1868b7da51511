"""Recurrent layers that are one fused op: the cost is that of their cells in every time step.

Every time step of every sequence uses each weight matrix once. Gate arithmetic per state element follows PyTorch's cells:
LSTM 13 (four adds of the two products, four activations, f c, i g, their sum, tanh, product with o), GRU 10, plain RNN 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from profiler_kit.counting.arithmetic import contraction, needed_gradients, numel, per_argument
from profiler_kit.counting.formulas import formula, named_formula
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


@named_formula("aten._cudnn_rnn", "aten.miopen_rnn")
def rnn(
    *, x: TensorSpec, weight: Sequence[TensorSpec], mode: int, hidden_size: int, num_layers: int, bidirectional: bool,
    out: Any, **_: Any,
) -> Cost:  # fmt: skip
    """All layers and directions of an RNN, LSTM or GRU."""
    states = steps(x) * hidden_size * num_layers * (1 + bidirectional)
    return contraction(steps(x) * matrix_elements(weight), x) + Cost(flops=states * GATE_FLOPS[mode])


@named_formula("aten._cudnn_rnn_backward", "aten.miopen_rnn_backward")
def rnn_backward(
    *, x: TensorSpec, weight: Sequence[TensorSpec], hx: TensorSpec, mode: int, hidden_size: int, num_layers: int,
    bidirectional: bool, output_mask: Sequence[bool], out: Any, **_: Any,
) -> Cost:  # fmt: skip
    """The needed gradients, as in `mkldnn_rnn_layer_backward`, over all layers and directions.

    `output_mask`: input, hx, cx, weights. Each layer and direction has a matrix for the input, one for the state, and
    optionally one for a projection.
    """
    directions = 1 + bidirectional
    matrices = [part for part in weight if len(part.shape) == 2]
    per_direction = len(matrices) // (num_layers * directions)
    macs = steps(x) * matrix_elements(matrices) * (1 + bool(output_mask[-1]))
    if not output_mask[0]:
        macs -= steps(x) * matrix_elements(matrices[::per_direction][:directions])
    if not output_mask[1]:
        macs -= hx.shape[-2] * matrix_elements(matrices[1::per_direction])
    gates = steps(x) * hidden_size * num_layers * directions * GATE_BACKWARD_FLOPS[mode]
    return contraction(macs, x) + Cost(flops=gates)


# gate arithmetic of a cell, per element of its state; the products are separate ops
formula("aten._thnn_fused_lstm_cell")(per_argument(2, GATE_FLOPS[2]))  # of cx
formula("aten._thnn_fused_gru_cell")(per_argument(2, GATE_FLOPS[3]))  # of hx
# of cx
formula("aten._thnn_fused_lstm_cell_backward_impl", "aten._thnn_fused_lstm_cell_backward")(
    per_argument(2, GATE_BACKWARD_FLOPS[2])
)
formula("aten._thnn_fused_gru_cell_backward")(per_argument(0, GATE_BACKWARD_FLOPS[3]))  # of grad_hy


@named_formula("aten._lstm_mps")
def lstm_mps(
    *, x: TensorSpec, hx: Sequence[TensorSpec], params: Sequence[TensorSpec], num_layers: int, bidirectional: bool,
    out: Any, **_: Any,
) -> Cost:  # fmt: skip
    """All layers and directions of an LSTM on Apple devices."""
    states = steps(x) * hx[0].shape[-1] * num_layers * (1 + bidirectional)
    return contraction(steps(x) * matrix_elements(params), x) + Cost(flops=states * GATE_FLOPS[2])

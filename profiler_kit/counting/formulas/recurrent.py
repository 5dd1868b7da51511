"""Recurrent layers that reach dispatch as one fused op: they cost what their cells do, step by step.

Every step of every sequence meets each weight matrix once. Gate arithmetic is counted per state element as PyTorch's own cells
do it: LSTM 13 (four adds of the two products, four activations, f c, i g, their sum, tanh, o times it), GRU 10, plain RNN 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from profiler_kit.counting.arithmetic import contraction, gradients_wanted, numel, per_argument
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec

# by mode of cuDNN and oneDNN: RNN with ReLU, RNN with tanh, LSTM, GRU
GATE_FLOPS: Final = (2, 2, 13, 10)
GATE_BACKWARD_FLOPS: Final = (1, 1, 11, 10)


def matrices(weights: Sequence[TensorSpec | None]) -> int:
    """Elements of all weight matrices, projections included; each meets every step once. Biases are free."""
    return sum(numel(weight) for weight in weights if weight is not None and len(weight.shape) == 2)


def steps(x: TensorSpec) -> int:
    """Time steps of all sequences together. Shapes: x (t, b, i), (b, t, i) or, packed, (sum of lengths, i)."""
    return prod(x.shape[:-1])


@formula("aten.mkldnn_rnn_layer")
def mkldnn_rnn_layer(
    x: TensorSpec, w_ih: TensorSpec, w_hh: TensorSpec, b_ih: Any, b_hh: Any, hx: Any, cx: Any, reverse: bool,
    batch_sizes: Any, mode: int, hidden_size: int, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """One layer and direction."""
    gates = Cost(flops=steps(x) * hidden_size * GATE_FLOPS[mode])
    return contraction(steps(x) * matrices((w_ih, w_hh)), x) + gates


@formula("aten.mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(
    x: TensorSpec, w_ih: TensorSpec, w_hh: TensorSpec, b_ih: Any, b_hh: Any, hx: TensorSpec, cx: Any, output: Any,
    hy: Any, cy: Any, grad_output: Any, grad_hy: Any, grad_cy: Any, reverse: bool, mode: int, hidden_size: int,
    *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """The gradients that are asked for: of the input, of both weights, and of the state before each step.

    The state before the first step is counted where the initial state needs a gradient. Bias gradients are free.
    """
    wanted = gradients_wanted("MkldnnRnnLayer", 6)  # of x, w_ih, w_hh, two biases, hx
    inner = steps(x) - (0 if wanted[5] else hx.shape[-2])
    macs = steps(x) * numel(w_ih) * (wanted[0] + wanted[1]) + (steps(x) * wanted[2] + inner) * numel(w_hh)
    return contraction(macs, x) + Cost(flops=steps(x) * hidden_size * GATE_BACKWARD_FLOPS[mode])


@formula("aten._cudnn_rnn")
def cudnn_rnn(
    x: TensorSpec, weights: Sequence[TensorSpec], stride: int, buffer: Any, hx: TensorSpec, cx: Any, mode: int,
    hidden_size: int, proj_size: int, num_layers: int, batch_first: bool, dropout: float, train: bool,
    bidirectional: bool, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """All layers and directions of an RNN, LSTM or GRU."""
    states = steps(x) * hidden_size * num_layers * (1 + bidirectional)
    return contraction(steps(x) * matrices(weights), x) + Cost(flops=states * GATE_FLOPS[mode])


@formula("aten.miopen_rnn")
def miopen_rnn(x: TensorSpec, weights: Sequence[TensorSpec], stride: int, *rest: Any, out: Any, **__: Any) -> Cost:
    """As `cudnn_rnn`, but that it has no buffer and no projection."""
    return cudnn_rnn(x, weights, stride, None, *rest[:4], 0, *rest[4:], out=out)


@formula("aten._cudnn_rnn_backward")
def cudnn_rnn_backward(
    x: TensorSpec, weights: Sequence[TensorSpec], stride: int, buffer: Any, hx: TensorSpec, cx: Any, output: Any,
    grad_output: Any, grad_hy: Any, grad_cy: Any, mode: int, hidden_size: int, proj_size: int, num_layers: int,
    batch_first: bool, dropout: float, train: bool, bidirectional: bool, batch_sizes: Any, dropout_state: Any,
    reserve: Any, output_mask: Sequence[bool], *_: Any, out: Any,
) -> Cost:  # fmt: skip
    """The gradients that are asked for, as `mkldnn_rnn_layer_backward`, over all layers and directions.

    `output_mask`: of the input, hx, cx, and the weights. Per layer and direction the matrices are the input's, the state's,
    and perhaps a projection's.
    """
    directions = 1 + bidirectional
    matrix = [weight for weight in weights if len(weight.shape) == 2]
    each = len(matrix) // (num_layers * directions)
    macs = steps(x) * matrices(matrix) * (1 + bool(output_mask[-1]))
    if not output_mask[0]:
        macs -= steps(x) * matrices(matrix[::each][:directions])
    if not output_mask[1]:
        macs -= hx.shape[-2] * matrices(matrix[1::each])
    gates = steps(x) * hidden_size * num_layers * directions * GATE_BACKWARD_FLOPS[mode]
    return contraction(macs, x) + Cost(flops=gates)


@formula("aten.miopen_rnn_backward")
def miopen_rnn_backward(x: TensorSpec, weights: Sequence[TensorSpec], *rest: Any, out: Any) -> Cost:
    """As `cudnn_rnn_backward`, but that it has no projection."""
    return cudnn_rnn_backward(x, weights, *rest[:10], 0, *rest[10:], out=out)


# a cell's gate arithmetic, per element of its state; its products are ops of their own
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
    """All layers and directions of an LSTM on Apple's devices."""
    states = steps(x) * hx[0].shape[-1] * num_layers * (1 + bidirectional)
    return contraction(steps(x) * matrices(params), x) + Cost(flops=states * GATE_FLOPS[2])

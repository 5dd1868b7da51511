"""Recurrent layers: one cuDNN call per stack of layers, with a reserve saved for backward. Cells are fused kernels.

On other devices a layer is a loop over time steps. Under autocast cuDNN's layers run in float16 for every low precision.

Source: ATen/native/cudnn/RNN.cpp; ATen/native/cuda/RNN.cu (cells: workspaces of 4 and 5 hidden sizes); ATen/autocast_mode
(``_cudnn_rnn_cast_reflatten``). The reserve size was measured on an H100 with cuDNN 9.19 (20 LSTM and GRU layers, 4 LSTMs
with dropout) and on an H200 (GRU, plain, projected and packed layers, and cells).
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from profiler_kit.meta.emulation import Call, Emulation, emulates
from profiler_kit.meta.emulation.autocast import autocast_enabled, cast
from profiler_kit.meta.emulation.library_calls import facts_of
from profiler_kit.records.calls import OpCall

_RESERVE: Final = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}  # hidden states saved per time step
_MODE: Final = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}  # of ``aten::_cudnn_rnn``
_GATES: Final = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


class _CudnnLayers(torch.autograd.Function):
    """The allocations of ``aten::_cudnn_rnn`` and its backward."""

    @staticmethod
    def forward(ctx: Any, use_workspace: Any, sizes: tuple[Any, ...], x: Any, h: Any, c: Any, *weights: Any) -> Any:
        shape, batch_first, reserve_bytes, facts, options = sizes
        out = x.new_empty(shape)
        if batch_first:  # the result is a view of cuDNN's output, which has time steps first
            out = out.transpose(0, 1)
        last = torch.empty_like(h)
        last_cell = torch.empty_like(c) if c is not None else None
        reserve = torch.empty(reserve_bytes, dtype=torch.uint8, device=x.device)
        outputs = (out, last, last_cell, reserve)
        arguments = facts_of((x, weights, len(weights), None, h, c, *options))
        use_workspace(OpCall("aten._cudnn_rnn", arguments, facts, facts_of(outputs)))
        ctx.save_for_backward(x, h, c, out, reserve, *weights)
        ctx.use_workspace, ctx.facts, ctx.options = use_workspace, facts, options
        return (out, last) if last_cell is None else (out, last, last_cell)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, h, c, out, reserve, *weights = ctx.saved_tensors
        grad_x, grad_h = torch.empty_like(x), torch.empty_like(h)
        grad_c = torch.empty_like(c) if c is not None else None
        flat = weights[0].new_empty(sum(weight.numel() for weight in weights))
        _, _, needs_x, needs_h, needs_c, *needs_weights = ctx.needs_input_grad
        needed = (needs_x, needs_h, needs_c, any(needs_weights))
        states = (x, weights, len(weights), None, h, c, out)
        arguments = facts_of((*states, *gradients, *(() if c is not None else (None,)), *ctx.options, reserve, needed))
        outputs = facts_of((grad_x, grad_h, grad_c, flat))
        ctx.use_workspace(OpCall("aten._cudnn_rnn_backward", arguments, ctx.facts, outputs, in_backward=True))
        grads, offset = [], 0
        for weight in weights:
            grads.append(flat[offset : offset + weight.numel()].view(weight.shape))
            offset += weight.numel()
        return (None, None, grad_x, grad_h, grad_c, *grads)


@emulates("lstm", "gru", "rnn_tanh", "rnn_relu")
def rnn_layers(emulation: Emulation, func: Call, *args: Any) -> object:
    """The results of cuDNN's recurrent layers, also for packed sequences."""
    name = func.__name__
    if isinstance(args[3], (list, tuple)):
        x, batch_sizes, states, weights, _, depth, dropout, train, bidirectional = args
        return _layers(
            emulation, name, x, states, weights, depth, dropout, train, bidirectional, batch_sizes=batch_sizes
        )
    x, states, weights, _, depth, dropout, train, bidirectional, batch_first = args
    return _layers(emulation, name, x, states, weights, depth, dropout, train, bidirectional, batch_first=batch_first)


def _layers(
    emulation: Emulation,
    name: str,
    x: Tensor,
    states: Any,
    weights: list[Tensor],
    depth: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    *,
    batch_first: bool = False,
    batch_sizes: Tensor | None = None,
) -> object:
    dtype = torch.float16 if autocast_enabled() else x.dtype
    h, c = states if name == "lstm" else (states, None)
    x, h, c = (cast(emulation, tensor, dtype) for tensor in (x, h, c))
    weights = [cast(emulation, tensor, dtype, cache=False) for tensor in weights]
    directions = 2 if bidirectional else 1
    hidden = weights[1].shape[0] // _GATES[name]  # the state is smaller with a projection
    rows = x.shape[0] if batch_sizes is not None else x.shape[0] * x.shape[1]
    element = x.element_size()
    states_bytes = rows * hidden * directions * element
    reserve = (_RESERVE[name] * depth + depth - 1) * states_bytes + 256 if train else 0
    if train and h.shape[-1] != hidden:  # each layer's state before and after its projection
        reserve += depth * (states_bytes + rows * h.shape[-1] * directions * element)
    if train and dropout:  # a bit mask for the input of each direction of a later layer
        reserve += (depth - 1) * directions**2 * rows * hidden // 8
    if batch_sizes is not None or name not in ("lstm", "gru"):
        layer = f"{name} on packed sequences" if batch_sizes is not None else name
        emulation.note(f"{layer}: cuDNN's reserve and workspace are estimates")
    if dropout and train:
        emulation.libraries.use_handle("cuDNN's dropout state", emulation.device.dropout_state, "aten._cudnn_rnn")
    facts = {
        "kind": name, "rows": rows, "batch": h.shape[1], "input_size": x.shape[-1], "hidden": hidden, "depth": depth,
        "directions": directions, "element_bytes": element, "dropout": dropout, "train": train,
        "packed": batch_sizes is not None,
    }  # fmt: skip
    projection = h.shape[-1] if h.shape[-1] != hidden else 0
    options = (
        _MODE[name], hidden, projection, depth, batch_first, dropout, train, bidirectional, batch_sizes is not None, None,
    )  # fmt: skip
    steps = (x.shape[1], x.shape[0]) if batch_first else x.shape[:-1]
    shape = (*steps, h.shape[-1] * directions)
    apply: Call = _CudnnLayers.apply
    return apply(emulation.libraries.use_workspace, (shape, batch_first, reserve, facts, options), x, h, c, *weights)


class _FusedCell(torch.autograd.Function):
    """The allocations of ``aten::_thnn_fused_lstm_cell`` or ``_thnn_fused_gru_cell`` and its backward."""

    @staticmethod
    def forward(ctx: Any, use_workspace: Any, gates: int, saved_states: int, state: Any, *others: Any) -> Any:
        workspace = state.new_empty((state.shape[0], saved_states * state.shape[1]))
        outputs = tuple(torch.empty_like(state) for _ in range(2 if gates == 4 else 1))
        op = "aten._thnn_fused_lstm_cell" if gates == 4 else "aten._thnn_fused_gru_cell"
        arguments = (*others[:2], state, *others[2:])
        use_workspace(OpCall(op, facts_of(arguments), outputs=facts_of((*outputs, workspace))))
        ctx.save_for_backward(state, workspace, *others[:2], *(outputs[1:] if gates == 4 else ()))
        ctx.gates, ctx.shapes = gates, [None if other is None else other.shape for other in others]
        ctx.use_workspace = use_workspace
        return outputs if gates == 4 else outputs[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        state, workspace, _, _, *cells = ctx.saved_tensors
        rows, hidden = state.shape
        grad_gates = [state.new_empty((rows, ctx.gates * hidden)) for _ in range(1 if ctx.gates == 4 else 2)]
        grad_state = torch.empty_like(state)
        has_bias = any(shape is not None for shape in ctx.shapes[2:])
        is_lstm = ctx.gates == 4
        op = "aten._thnn_fused_lstm_cell_backward_impl" if is_lstm else "aten._thnn_fused_gru_cell_backward"
        arguments = (*gradients, *((state, *cells) if is_lstm else ()), workspace, has_bias)
        outputs = facts_of((*grad_gates, grad_state))
        ctx.use_workspace(OpCall(op, facts_of(arguments), outputs=outputs, in_backward=True))
        biases = [grad_gates[-1].sum(0) for shape in ctx.shapes[2:] if shape is not None]
        biases += [None] * (len(ctx.shapes) - 2 - len(biases))
        return (None, None, None, grad_state, grad_gates[0], grad_gates[-1], *biases)


@emulates("lstm_cell", "gru_cell")
def rnn_cell(
    emulation: Emulation, func: Call, x: Tensor, states: Any, w_x: Tensor, w_h: Tensor, *biases: Tensor | None
) -> object:
    """(hidden, cell) of an LSTM, or the hidden state of a GRU: the fused kernel on the two matrix products."""
    h, state, sizes = (*states, (4, 4)) if func.__name__ == "lstm_cell" else (states, states, (3, 5))
    products = torch.nn.functional.linear(x, w_x), torch.nn.functional.linear(h, w_h)
    apply: Call = _FusedCell.apply
    return apply(emulation.libraries.use_workspace, *sizes, state.to(products[0].dtype), *products, *biases)

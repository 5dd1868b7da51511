"""Hand-derived: recurrent layers. T steps of B sequences, IN inputs, H states; an LSTM has 4 gates, a GRU 3, an RNN 1.

Each step costs gates x H x (IN + H) MACs per sequence. Backward: both weights' gradients at every step, the state's at every step
but the first (the initial state needs none), the input's where it needs one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from case_table import On, case
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

T, B, IN, H, P = 5, 2, 4, 3, 2
KINDS: tuple[tuple[str, Any, int, int], ...] = (("LSTM", nn.LSTM, 4, 13), ("GRU", nn.GRU, 3, 10), ("RNN", nn.RNN, 1, 2))
LENGTHS = (5, 3)


def first(module: nn.Module) -> Callable[..., Tensor]:
    return lambda *args: module(*args)[0]


def packed(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: module(pack_padded_sequence(x, torch.tensor(LENGTHS)))[0].data


def one_way(gates: int, inputs: int = IN, states: int = H) -> int:
    """MACs of a layer and direction over all steps."""
    return T * B * gates * H * (inputs + states)


def gradients(gates: int, inputs: int = IN, states: int = H, to_input: bool = True) -> int:
    """MACs of its backward."""
    return T * B * gates * H * inputs * (1 + to_input) + (2 * T - 1) * B * gates * H * states


CASES = [
    one
    for name, kind, gates, flops in KINDS
    for one in (
        case(name, lambda on, kind=kind: (first(on.m(kind(IN, H))), on.w(T, B, IN)), one_way(gates), gradients(gates),
             flops=2 * one_way(gates) + T * B * H * flops),
        case(f"{name}, input without a gradient", lambda on, kind=kind: (first(on.m(kind(IN, H))), on.x(T, B, IN)),
             one_way(gates), gradients(gates, to_input=False), flops=None),
        case(f"{name}, no gradients", lambda on, kind=kind: (torch.no_grad()(first(on.m(kind(IN, H)).eval())), on.x(T, B, IN)),
             one_way(gates), flops=2 * one_way(gates) + T * B * H * flops),
        case(f"{name}, batch first, no bias", lambda on, kind=kind: (first(on.m(kind(IN, H, batch_first=True, bias=False))),
             on.w(B, T, IN)), one_way(gates), gradients(gates), flops=None),
        case(f"{name}, both directions", lambda on, kind=kind: (first(on.m(kind(IN, H, bidirectional=True))), on.w(T, B, IN)),
             2 * one_way(gates), 2 * gradients(gates), flops=None),
        case(f"{name}, two layers", lambda on, kind=kind: (first(on.m(kind(IN, H, 2))), on.w(T, B, IN)),
             one_way(gates) + one_way(gates, H), gradients(gates) + gradients(gates, H), flops=None),
        case(f"{name}, two layers, both directions", lambda on, kind=kind: (first(on.m(kind(IN, H, 2, bidirectional=True))),
             on.w(T, B, IN)), 2 * one_way(gates) + 2 * one_way(gates, 2 * H), 2 * gradients(gates) + 2 * gradients(gates, 2 * H),
             flops=None),
        case(f"{name}, packed", lambda on, kind=kind: (packed(on.m(kind(IN, H))), on.x(T, B, IN)),
             sum(LENGTHS) * gates * H * (IN + H), flops=None),
        case(f"{name}, without a batch", lambda on, kind=kind: (first(on.m(kind(IN, H))), on.x(T, IN)), one_way(gates) // B,
             flops=None),
    )
] + [
    # per step the state is projected from H to P, and P is what comes back
    case("LSTM, projected", lambda on: (first(on.m(nn.LSTM(IN, H, proj_size=P))), on.w(T, B, IN)),
         one_way(4, states=P) + T * B * H * P, gradients(4, states=P) + 2 * T * B * H * P, flops=None),
    case("LSTM, initial state with a gradient", lambda on: (lambda m, x, h, c: m(x, (h, c))[0], on.m(nn.LSTM(IN, H)),
         on.w(T, B, IN), on.w(1, B, H), on.w(1, B, H)), one_way(4), gradients(4) + B * 4 * H * H, flops=None),
    case("LSTM cell", lambda on: (first(on.m(nn.LSTMCell(IN, H))), on.w(B, IN)), B * 4 * H * (IN + H), B * 4 * H * (2 * IN + H),
         flops=2 * B * 4 * H * (IN + H) + 13 * B * H),
    case("GRU cell", lambda on: (on.m(nn.GRUCell(IN, H)), on.w(B, IN)), B * 3 * H * (IN + H), B * 3 * H * (2 * IN + H),
         flops=2 * B * 3 * H * (IN + H) + 10 * B * H),
    case("RNN cell", lambda on: (on.m(nn.RNNCell(IN, H)), on.w(B, IN)), B * H * (IN + H), B * H * (2 * IN + H),
         flops=2 * B * H * (IN + H) + 2 * B * H),
    case("cuDNN's LSTM, by its arguments", lambda on: (cudnn(on, 2, gates=4, layers=2, directions=2), on.x(T, B, IN)),
         2 * one_way(4) + 2 * one_way(4, 2 * H), flops=2 * (2 * one_way(4) + 2 * one_way(4, 2 * H)) + 4 * T * B * H * 13,
         devices=("meta",)),
    case("cuDNN's GRU, by its arguments", lambda on: (cudnn(on, 3, gates=3, layers=1, directions=1), on.x(T, B, IN)), one_way(3),
         flops=2 * one_way(3) + T * B * H * 10, devices=("meta",)),
]  # fmt: skip


def matrices(on: On, gates: int, layers: int, directions: int) -> list[Tensor]:
    weights = []
    for layer in range(layers):
        for _ in range(directions):
            weights += [
                on.x(gates * H, directions * H if layer else IN),
                on.x(gates * H, H),
                on.x(gates * H),
                on.x(gates * H),
            ]
    return weights


def cudnn(on: On, mode: int, gates: int, layers: int, directions: int) -> Callable[[Tensor], Tensor]:
    weights, state = matrices(on, gates, layers, directions), on.x(layers * directions, B, H)
    both = directions == 2
    return lambda x: torch.ops.aten._cudnn_rnn(
        x, weights, 4, None, state, state, mode, H, 0, layers, False, 0.0, False, both, [], None
    )[0]

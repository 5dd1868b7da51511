"""FLOPs of operators from the shapes that a trace has recorded: matrix products, convolutions, attention; MAC = 2.

**Counts**: the operator's arithmetic by its definition, whatever algorithm ran. Elementwise work, which is no share worth a
name, is not counted. None is unknown: shapes or arguments are missing, or the operator is none of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

Shape = tuple[int, ...]
Formula = Callable[[Sequence[Any], Sequence[Any]], int]

# Backward passes of fused attention do five products for the forward's two (scores anew, four gradients).
# Source: Dao, FlashAttention-2 (https://arxiv.org/abs/2307.08691), section 3.1; torch.utils.flop_counter counts the same.
_ATTENTION_BACKWARD: Final = 5


def operator_flops(name: str, shapes: str, inputs: str | None) -> int | None:
    """FLOPs of one call of `name` whose "Input Dims" and "Concrete Inputs" are these texts; None where they can't be known."""
    formula = _FORMULAS.get(name)
    if formula is None:
        return None
    try:
        flops = formula(json.loads(shapes), json.loads(inputs) if inputs is not None else ())
    except (ArithmeticError, ValueError, TypeError, IndexError, KeyError, RecursionError):
        return None  # other arguments than these operators have
    return flops if flops >= 0 else None


def is_counted(name: str) -> bool:
    """Whether there is a formula for operators called `name`."""
    return name in _FORMULAS


def _shape(value: Any, dimensions: int | None = None) -> Shape:
    if not isinstance(value, list) or not all(isinstance(n, int) and n >= 0 for n in value):
        raise ValueError(f"{value!r} is no shape")
    if dimensions is not None and len(value) != dimensions:
        raise ValueError(f"{value!r} has not {dimensions} dimensions")
    return tuple(value)


def _list(value: Any) -> list[Any]:
    """An argument that is a list: the profiler writes ``"[1, 1]"``, and booleans as Python does."""
    found = json.loads(value.replace("True", "true").replace("False", "false")) if isinstance(value, str) else value
    if not isinstance(found, list):
        raise TypeError(f"{value!r} is no list")
    return found


def _flag(value: Any) -> bool:
    if str(value) in ("True", "true", "1"):
        return True
    if str(value) in ("False", "false", "0"):
        return False
    raise ValueError(f"{value!r} is no flag")


def _product(left: int, right: int) -> Formula:
    """A matrix product of the arguments numbered `left` and `right`, with or without a batch."""

    def flops(shapes: Sequence[Any], _inputs: Sequence[Any]) -> int:
        a, b = _shape(shapes[left]), _shape(shapes[right])
        if len(a) < 2 or len(a) != len(b) or a[-1] != b[-2]:
            raise ValueError("not the shapes of a matrix product")
        return 2 * prod(a) * b[-1]

    return flops


def _convolution(shapes: Sequence[Any], inputs: Sequence[Any]) -> int:
    # input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    data, weight = _shape(shapes[0]), _shape(shapes[1])
    if _flag(inputs[6]):
        return 2 * prod(data) * prod(weight[1:])
    sides = zip(data[2:], weight[2:], *(_spread(inputs[i], len(data) - 2) for i in (3, 4, 5)), strict=True)
    out = [(n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for n, kernel, stride, pad, dilation in sides]
    flops: int = 2 * data[0] * prod(out) * prod(weight)
    return flops


def _spread(value: Any, dimensions: int) -> list[int]:
    numbers = _list(value)
    return numbers * dimensions if len(numbers) == 1 else numbers


def _convolution_backward(shapes: Sequence[Any], inputs: Sequence[Any]) -> int:
    # grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
    gradient, data, weight = (_shape(shapes[i]) for i in range(3))
    wanted = sum(_flag(flag) for flag in _list(inputs[10])[:2])
    return wanted * 2 * prod(data if _flag(inputs[7]) else gradient) * prod(weight[1:])


def _attention(first: int) -> Formula:
    """Query, key and value are the arguments from `first` on, each batch x heads x length x width."""

    def flops(shapes: Sequence[Any], _inputs: Sequence[Any]) -> int:
        query, key, value = (_shape(shapes[first + i], 4) for i in range(3))
        return 2 * prod(query[:3]) * key[2] * (query[3] + value[3])

    return flops


def _attention_backward(first: int) -> Formula:
    forward = _attention(first)

    def flops(shapes: Sequence[Any], inputs: Sequence[Any]) -> int:
        return forward(shapes, inputs) * _ATTENTION_BACKWARD // 2

    return flops


_FORMULAS: Final[dict[str, Formula]] = {
    "aten::mm": _product(0, 1),
    "aten::bmm": _product(0, 1),
    "aten::addmm": _product(1, 2),
    "aten::addmm_": _product(1, 2),
    "aten::baddbmm": _product(1, 2),
    "aten::baddbmm_": _product(1, 2),
    "aten::addbmm": _product(1, 2),
    "aten::_addmm_activation": _product(1, 2),
    "aten::_scaled_mm": _product(0, 1),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::scaled_dot_product_attention": _attention(0),
    "aten::_scaled_dot_product_flash_attention": _attention(0),
    "aten::_scaled_dot_product_efficient_attention": _attention(0),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0),
    "aten::_scaled_dot_product_flash_attention_backward": _attention_backward(1),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention_backward(1),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention_backward(1),
}

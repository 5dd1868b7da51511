"""Quantities of a trace over time: FLOP/s, memory, how many launches wait, how much runs at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from profiler_kit.attribution.events import innermost_enclosing, outermost_enclosing
from profiler_kit.attribution.result import Attribution
from profiler_kit.records.lanes import CounterTrack
from profiler_kit.traces.table import (
    ALLOCATED,
    DEVICE_ID,
    DEVICE_TYPE,
    HOST_TYPE,
    NONE,
    RESERVED,
    Ids,
    Ints,
    Kind,
    Mask,
)

# Of the time of kernels that compute: with less of it known, a rate would tell more of the trace than of the work.
LEAST_KNOWN: Final = 0.5

_MEMORY: Final = ((ALLOCATED, "memory allocated (MiB)"), (RESERVED, "memory reserved (MiB)"))


def waiting(attribution: Attribution, mask: Mask) -> CounterTrack | None:
    """How many of the device events in `mask` are launched and have not begun; None where none has its launch in the trace."""
    table, device = attribution.table, attribution.device
    linked = mask & (device.launch != NONE)
    begun = table.start_ns[device.rows[linked]]
    launched = np.minimum(table.end_ns[attribution.host.rows[device.launch[linked]]], begun)
    waited = begun > launched
    return _counted("queue depth (launches)", launched[waited], begun[waited])


def running(attribution: Attribution, mask: Mask) -> CounterTrack | None:
    """How many of the device events in `mask` run."""
    rows = attribution.device.rows[mask]
    return _counted("busy (events running)", attribution.table.start_ns[rows], attribution.table.end_ns[rows])


def memory(attribution: Attribution) -> tuple[CounterTrack, ...]:
    """Memory of each device, and of the host, as the profiler's allocation events tell it."""
    table = attribution.table
    tracks = []
    for key, title in _MEMORY:
        sparse = table.more.get(key)
        if sparse is None:
            continue
        kind, number = table.numbers_at(DEVICE_TYPE, sparse.rows), table.numbers_at(DEVICE_ID, sparse.rows)
        devices = np.unique(np.stack((kind, number), axis=1), axis=0)
        on_devices = int((devices[:, 0] != HOST_TYPE).sum())
        for of_kind, of_number in devices.tolist():
            place = "host " if of_kind == HOST_TYPE else f"device {of_number} " if on_devices > 1 else ""
            mine = (kind == of_kind) & (number == of_number)
            at, value = _last_at(table.start_ns[sparse.rows[mine]], sparse.values[mine].astype(np.int64))
            if value.any():
                tracks.append(CounterTrack(name=place + title, points=_points(at, (value / (1 << 20)).round(3))))
    return tuple(tracks)


def _last_at(at: Ints, value: Ints) -> tuple[Ints, Ints]:
    """In order of time the last value of each instant, where it is another than before."""
    order = np.argsort(at, kind="stable")
    at, value = at[order], value[order]
    last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
    at, value = at[last], value[last]
    new = np.diff(value, prepend=value[0] - 1) != 0
    return at[new], value[new]


def rate(attribution: Attribution, mask: Mask) -> tuple[CounterTrack | None, str | None]:
    """FLOP/s while kernels of counted operators run, and what to know of it.

    An operator's FLOPs go by while its kernels run: its rate is its FLOPs over the sum of their durations. Kernels that run
    beside each other add up.
    """
    table, host, device = attribution.table, attribution.host, attribution.device
    if not (table.shapes != NONE).any():
        return None, "no FLOP/s: the trace has no shapes (record it with record_shapes=True)"
    counted = _counted_operator(attribution)
    owner = np.where(device.operator != NONE, counted[device.operator], NONE) if len(counted) else device.operator
    owner = np.where(mask & (table.kind[device.rows] == Kind.KERNEL), owner, NONE)
    operators, index = np.unique(owner[owner != NONE], return_inverse=True)
    rows = device.rows[owner != NONE]
    duration = table.duration_ns[rows]
    flops = _flops(attribution, host.rows[operators])
    known = flops >= 0
    missing = int((~known).sum())
    total = np.bincount(index, weights=duration, minlength=len(operators))
    note = None
    if missing:
        lacking = f"{missing} of {len(operators)} products, convolutions and attentions lack shapes or arguments"
        if total[known].sum() < LEAST_KNOWN * total.sum():
            return None, f"no FLOP/s: {lacking}"
        note = f"FLOP/s: {lacking}"
    with np.errstate(divide="ignore", invalid="ignore"):
        teraflops = np.where(known & (total > 0), flops / total / 1e3, 0.0)
    step = teraflops[index]
    used = (step > 0) & (duration > 0)
    if not used.any():
        return None, note or "no FLOP/s: no matrix product, convolution or attention with shapes ran on the device"
    start, end = table.start_ns[rows][used], table.end_ns[rows][used]
    at = np.concatenate((start, end))
    # Whole kiloflops, so that what adds up comes back to zero.
    change = np.concatenate((step[used], -step[used]))
    at, value = _steps(at, (change * 1e9).round().astype(np.int64))
    return CounterTrack(name="TFLOP/s", points=_points(at, (value / 1e9).round(6))), note


def _counted_operator(attribution: Attribution) -> Ids:
    """For each host position the outermost counted operator around it, itself included; NONE where there is none."""
    table, host = attribution.table, attribution.host
    names = np.array([is_counted(name) for name in table.names], dtype=np.bool_)
    counted = names[table.name[host.rows]] & (table.kind[host.rows] == Kind.OPERATOR)
    return outermost_enclosing(host.parent, innermost_enclosing(host.parent, counted))


def _flops(attribution: Attribution, rows: Ids) -> Ints:
    """FLOPs of the operators in `rows`, each kind of call worked out once; -1 where they are not known."""
    table = attribution.table
    calls = np.stack((table.name[rows], table.shapes[rows], table.inputs[rows]), axis=1)
    kinds, index = np.unique(calls, axis=0, return_inverse=True)
    flops = []
    for name, shapes, inputs in kinds.tolist():
        text = table.texts[inputs] if inputs != NONE else None
        flops_of = operator_flops(table.names[name], table.texts[shapes], text) if shapes != NONE else None
        flops.append(-1 if flops_of is None or flops_of >= 1 << 62 else flops_of)
    return np.array(flops, dtype=np.int64)[index.reshape(-1)] if flops else np.zeros(0, dtype=np.int64)


def _counted(name: str, start: Ints, end: Ints) -> CounterTrack | None:
    if not len(start):
        return None
    change = np.repeat(np.array((1, -1), dtype=np.int64), len(start))
    return CounterTrack(name=name, points=_points(*_steps(np.concatenate((start, end)), change)))


def _steps(at: Ints, change: Ints) -> tuple[Ints, Ints]:
    """Instants in order, each once, and the sum of all changes up to and with each; those that change nothing are left out."""
    order = np.argsort(at, kind="stable")
    at, value = at[order], np.cumsum(change[order])
    last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
    at, value = at[last], value[last]
    new = np.diff(value, prepend=0) != 0
    return at[new], value[new]


def _points(
    at: Ints, values: Ints | np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[tuple[int, int | float], ...]:
    return tuple(zip(at.tolist(), values.tolist(), strict=True))


# ---- FLOPs of operators from the shapes of their inputs: matrix products, convolutions, attention; MAC = 2


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
    parsed = json.loads(value.replace("True", "true").replace("False", "false")) if isinstance(value, str) else value
    if not isinstance(parsed, list):
        raise TypeError(f"{value!r} is no list")
    return parsed


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

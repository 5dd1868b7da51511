"""Counters of a trace over time: FLOP/s, memory, queued launches, running events."""

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

# Of the time of matrix products, convolutions and attention. With less of it counted, a rate would describe the trace
# rather than the work.
MIN_COUNTED_SHARE: Final = 0.5

_MEMORY: Final = ((ALLOCATED, "memory allocated (MiB)"), (RESERVED, "memory reserved (MiB)"))


def queue_depth(attribution: Attribution, mask: Mask) -> CounterTrack | None:
    """Return the number of launched device events of `mask` that have not begun, over time.

    None if no event has a launch in the trace.
    """
    table, device = attribution.table, attribution.device
    linked = mask & (device.launch != NONE)
    work_start = table.start_ns[device.rows[linked]]
    launch_end = np.minimum(table.end_ns[attribution.host.rows[device.launch[linked]]], work_start)
    is_queued = work_start > launch_end
    return _count_track("queue depth (launches)", launch_end[is_queued], work_start[is_queued])


def running_events(attribution: Attribution, mask: Mask) -> CounterTrack | None:
    """Return the number of device events of `mask` that run, over time."""
    rows = attribution.device.rows[mask]
    return _count_track("busy (events running)", attribution.table.start_ns[rows], attribution.table.end_ns[rows])


def memory_tracks(attribution: Attribution) -> tuple[CounterTrack, ...]:
    """Return the memory of each device and of the host over time, from the profiler's allocation events."""
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
            prefix = "host " if of_kind == HOST_TYPE else f"device {of_number} " if on_devices > 1 else ""
            on_device = (kind == of_kind) & (number == of_number)
            at, value = _changes(table.start_ns[sparse.rows[on_device]], sparse.values[on_device].astype(np.int64))
            if value.any():
                tracks.append(CounterTrack(name=prefix + title, points=_points(at, (value / (1 << 20)).round(3))))
    return tuple(tracks)


def _changes(at: Ints, value: Ints) -> tuple[Ints, Ints]:
    """Return the last value at each time, in order of time, without repeated values except at the end."""
    order = np.argsort(at, kind="stable")
    at, value = at[order], value[order]
    last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
    at, value = at[last], value[last]
    is_shown = np.diff(value, prepend=value[0] - 1) != 0
    is_shown[-1] = True  # viewers draw nothing after the last point
    return at[is_shown], value[is_shown]


def flop_rate(attribution: Attribution, mask: Mask) -> tuple[CounterTrack | None, str | None]:
    """Return FLOP/s while kernels of counted operators run, and a note on their completeness.

    The rate of an operator is its FLOPs divided by the sum of its kernels' durations. It applies while its kernels
    run. Rates of kernels that run at the same time add up.
    """
    table, host, device = attribution.table, attribution.host, attribution.device
    if not (table.shapes != NONE).any():
        recipe = "" if attribution.table.info.record_shapes else " Record with record_shapes=True."
        return None, f"No FLOP/s: the trace has no shapes.{recipe}"
    counted_operator = _counted_operator(attribution)
    operator_of = (
        np.where(device.operator != NONE, counted_operator[device.operator], NONE)
        if len(counted_operator)
        else device.operator
    )
    operator_of = np.where(mask & (table.kind[device.rows] == Kind.KERNEL), operator_of, NONE)
    operators, index = np.unique(operator_of[operator_of != NONE], return_inverse=True)
    rows = device.rows[operator_of != NONE]
    duration = table.duration_ns[rows]
    flops = _flops(attribution, host.rows[operators])
    is_known = flops >= 0
    missing_count = int((~is_known).sum())
    total = np.bincount(index, weights=duration, minlength=len(operators))
    note = None
    if missing_count:
        reason = f"{missing_count} of {len(operators)} products, convolutions and attentions lack shapes or arguments"
        if total[is_known].sum() < MIN_COUNTED_SHARE * total.sum():
            return None, f"No FLOP/s: {reason}."
        note = f"FLOP/s: {reason}."
    with np.errstate(divide="ignore", invalid="ignore"):
        teraflops = np.where(is_known & (total > 0), flops / total / 1e3, 0.0)
    step = teraflops[index]
    is_running = (step > 0) & (duration > 0)
    if not is_running.any():
        return None, note or "No FLOP/s: no matrix product, convolution or attention with shapes ran on the device."
    start, end = table.start_ns[rows][is_running], table.end_ns[rows][is_running]
    at = np.concatenate((start, end))
    # Whole kiloflops, so that sums return to zero.
    change = np.concatenate((step[is_running], -step[is_running]))
    at, value = _cumulate(at, (change * 1e9).round().astype(np.int64))
    return CounterTrack(name="TFLOP/s", points=_points(at, (value / 1e9).round(6))), note


def _counted_operator(attribution: Attribution) -> Ids:
    """Return, for each host position, the outermost counted operator that encloses it or is it, or NONE."""
    table, host = attribution.table, attribution.host
    names = np.array([has_flop_formula(name) for name in table.names], dtype=np.bool_)
    counted = names[table.name[host.rows]] & (table.kind[host.rows] == Kind.OPERATOR)
    return outermost_enclosing(host.parent, innermost_enclosing(host.parent, counted))


def _flops(attribution: Attribution, rows: Ids) -> Ints:
    """Return the FLOPs of the operators in `rows`, -1 if unknown. Each distinct call is computed once."""
    table = attribution.table
    calls = np.stack((table.name[rows], table.shapes[rows], table.inputs[rows]), axis=1)
    kinds, index = np.unique(calls, axis=0, return_inverse=True)
    flops = []
    for name, shapes, inputs in kinds.tolist():
        text = table.texts[inputs] if inputs != NONE else None
        flops_of = operator_flops(table.names[name], table.texts[shapes], text) if shapes != NONE else None
        flops.append(-1 if flops_of is None or flops_of >= 1 << 62 else flops_of)
    return np.array(flops, dtype=np.int64)[index.reshape(-1)] if flops else np.zeros(0, dtype=np.int64)


def _count_track(name: str, start: Ints, end: Ints) -> CounterTrack | None:
    if not len(start):
        return None
    change = np.repeat(np.array((1, -1), dtype=np.int64), len(start))
    return CounterTrack(name=name, points=_points(*_cumulate(np.concatenate((start, end)), change)))


def _cumulate(at: Ints, change: Ints) -> tuple[Ints, Ints]:
    """Return the times in order, each once, and the sum of all changes up to each. Times without a change are left out."""
    order = np.argsort(at, kind="stable")
    at, value = at[order], np.cumsum(change[order])
    last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
    at, value = at[last], value[last]
    is_change = np.diff(value, prepend=0) != 0
    return at[is_change], value[is_change]


def _points(
    at: Ints, values: Ints | np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[tuple[int, int | float], ...]:
    return tuple(zip(at.tolist(), values.tolist(), strict=True))


# ---- FLOPs of operators from the shapes of their inputs: matrix products, convolutions, attention; MAC = 2


Shape = tuple[int, ...]
Formula = Callable[[Sequence[Any], Sequence[Any]], int]

# Backward of fused attention computes five products for the two of forward (recomputed scores, four gradients).
# Source: Dao, FlashAttention-2 (https://arxiv.org/abs/2307.08691), section 3.1; torch.utils.flop_counter counts the
# same.
_ATTENTION_BACKWARD_PRODUCTS: Final = 5


def operator_flops(name: str, shapes: str, inputs: str | None) -> int | None:
    """Return the FLOPs of one call of `name`; None if unknown.

    The arguments are the texts of "Input Dims" and "Concrete Inputs".
    """
    formula = _FORMULAS.get(name)
    if formula is None:
        return None
    try:
        flops = formula(json.loads(shapes), json.loads(inputs) if inputs is not None else ())
    except (ArithmeticError, ValueError, TypeError, IndexError, KeyError, RecursionError):
        return None  # unexpected arguments
    return flops if flops >= 0 else None


def has_flop_formula(name: str) -> bool:
    """Return whether there is a FLOP formula for operators called `name`."""
    return name in _FORMULAS


def _shape(value: Any, dimensions: int | None = None) -> Shape:
    if not isinstance(value, list) or not all(isinstance(n, int) and n >= 0 for n in value):
        raise ValueError(f"{value!r} is not a shape")
    if dimensions is not None and len(value) != dimensions:
        raise ValueError(f"{value!r} does not have {dimensions} dimensions")
    return tuple(value)


def _list(value: Any) -> list[Any]:
    """Return a list argument. The profiler writes it as text, ``"[1, 1]"``, with booleans as in Python."""
    parsed = json.loads(value.replace("True", "true").replace("False", "false")) if isinstance(value, str) else value
    if not isinstance(parsed, list):
        raise TypeError(f"{value!r} is not a list")
    return parsed


def _flag(value: Any) -> bool:
    if str(value) in ("True", "true", "1"):
        return True
    if str(value) in ("False", "false", "0"):
        return False
    raise ValueError(f"{value!r} is not a flag")


def _matrix_product(left: int, right: int) -> Formula:
    """Return the formula of a matrix product of the arguments `left` and `right`, with or without a batch."""

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
    dimensions = zip(data[2:], weight[2:], *(_per_dimension(inputs[i], len(data) - 2) for i in (3, 4, 5)), strict=True)
    out = [(n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for n, kernel, stride, pad, dilation in dimensions]
    flops: int = 2 * data[0] * prod(out) * prod(weight)
    return flops


def _per_dimension(value: Any, dimensions: int) -> list[int]:
    numbers = _list(value)
    return numbers * dimensions if len(numbers) == 1 else numbers


def _convolution_backward(shapes: Sequence[Any], inputs: Sequence[Any]) -> int:
    # grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
    gradient, data, weight = (_shape(shapes[i]) for i in range(3))
    gradient_count = sum(_flag(flag) for flag in _list(inputs[10])[:2])
    return gradient_count * 2 * prod(data if _flag(inputs[7]) else gradient) * prod(weight[1:])


def _attention(first: int) -> Formula:
    """Return the formula of attention.

    Query, key and value are the arguments from `first` on, each batch x heads x length x width.
    """

    def flops(shapes: Sequence[Any], _inputs: Sequence[Any]) -> int:
        query, key, value = (_shape(shapes[first + i], 4) for i in range(3))
        return 2 * prod(query[:3]) * key[2] * (query[3] + value[3])

    return flops


def _attention_backward(first: int) -> Formula:
    forward = _attention(first)

    def flops(shapes: Sequence[Any], inputs: Sequence[Any]) -> int:
        return forward(shapes, inputs) * _ATTENTION_BACKWARD_PRODUCTS // 2

    return flops


_FORMULAS: Final[dict[str, Formula]] = {
    "aten::mm": _matrix_product(0, 1),
    "aten::bmm": _matrix_product(0, 1),
    "aten::addmm": _matrix_product(1, 2),
    "aten::addmm_": _matrix_product(1, 2),
    "aten::baddbmm": _matrix_product(1, 2),
    "aten::baddbmm_": _matrix_product(1, 2),
    "aten::addbmm": _matrix_product(1, 2),
    "aten::_addmm_activation": _matrix_product(1, 2),
    "aten::_scaled_mm": _matrix_product(0, 1),
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

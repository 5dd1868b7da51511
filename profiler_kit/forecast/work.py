"""What decides the kernel time of an op call: its family, the properties that select a kernel, its sizes, and its ideal time.

Calls are facts without tensors (`OpCall`), so a recorded call on a device and a call on meta tensors have the same work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from profiler_kit.devices.device import Peaks
from profiler_kit.records.calls import OpCall, TensorFacts

# Launch of a kernel until its end with almost no work: an empty kernel on an H100 takes about this long.
KERNEL_NS: Final = 1500
# A recurrent layer runs its time steps one after the other; cuDNN needs about this long for one.
SERIAL_STEP_NS: Final = 5000
_TILE: Final = 128  # rows and columns of the part of a product that one multiprocessor computes
_MULTIPROCESSORS: Final = 132  # of the card of the recordings
_TENSOR_CORE_BYTES: Final = 16  # rows that begin at multiples of this can be loaded as a whole
# The same kernels under another name, chosen by the device's library.
_SAME_KERNELS: Final = {
    "aten.cudnn_batch_norm": "aten.native_batch_norm",
    "aten.cudnn_batch_norm_backward": "aten.native_batch_norm_backward",
}
_PRODUCTS: Final = frozenset(f"aten.{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation"))
_ATTENTION: Final = ("aten._scaled_dot_product_", "aten._flash_attention", "aten._efficient_attention")
_RECURRENT: Final = ("aten._cudnn_rnn", "aten._cudnn_rnn_backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """Whether products and convolutions of float32 tensors may run in TF32."""

    tf32_products: bool = False
    tf32_convolutions: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of one call.

    - `family`: calls of one family are compared with each other.
    - `classes`: properties that select a kernel, such as dtype, layout and alignment.
    - `sizes`: what else decides the time: logarithms (base 2) of sizes, how full the tiles of a product are, and others. As many
      in each work of a family, in one order.
    - `flops`: of the contraction; 0 for other ops. `math`: its arithmetic, as kernel names spell it.
    - `moved_bytes`: operands and results, each once.
    - `serial_ns`: time of steps that wait for each other.
    """

    op: str
    family: str
    classes: tuple[str, ...]
    sizes: tuple[float, ...]
    math: str
    moved_bytes: int
    flops: float = 0.0
    serial_ns: float = 0.0

    @property
    def amounts(self) -> tuple[float, float, float]:
        """Logarithms of the arithmetic, of the traffic, and of their quotient."""
        flops, moved = _log(self.flops), _log(self.moved_bytes)
        return flops, moved, flops - moved

    def ideal_ns(self, peaks: Peaks) -> float:
        """The time of its arithmetic and then its traffic at the datasheet peaks, and that of an empty kernel.

        Their sum, and not the longer one: the ratio of measured times to it changes less between sizes.
        """
        rate = peaks.for_math(self.math) or peaks.fp32
        return KERNEL_NS + self.serial_ns + (self.flops / rate + self.moved_bytes / peaks.bandwidth) * 1e9


def work_of(call: OpCall, arithmetic: Arithmetic = Arithmetic()) -> Work | None:
    """The work of `call`; None for a call without tensors."""
    op = _SAME_KERNELS.get(call.op, call.op)
    if not op.startswith(("aten._foreach_", "aten._fused_")):
        op = op.removesuffix("_")  # in place, with the same kernel
    reads = tuple(_tensors((call.args, tuple(call.kwargs.values()))))
    writes = tuple(_tensors(call.outputs))
    if not reads and not writes:
        return None
    for matches, describe in _FAMILIES:
        if matches(op) and (work := describe(op, call, reads, writes, arithmetic)) is not None:
            return work
    return _memory(op, call, reads, writes, arithmetic)


Tensors = tuple[TensorFacts, ...]


def _product(op: str, call: OpCall, reads: Tensors, writes: Tensors, arithmetic: Arithmetic) -> Work | None:
    left, right = [tensor for tensor in reads if len(tensor.shape) >= 2][-2:]
    batch = left.shape[0] if len(left.shape) == 3 else 1
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    orders = tuple(_order(tensor) for tensor in (left, right))
    lines = (inner if orders[0] == "rows" else rows, columns if orders[1] == "rows" else inner, columns)
    arithmetic_name = _math(left, tf32=arithmetic.tf32_products)
    alignment = _alignment(left.element_bytes, lines)
    return Work(
        op=op,
        family="product",
        classes=(arithmetic_name, str(op == "aten.addmm"), "-".join(orders), str(batch > 1), alignment),
        sizes=(
            *_logs(batch, rows, columns, inner, min(rows, columns)),
            *_tiles(batch, rows, columns),
            *(_factor_of_two(size) for size in (rows, columns, inner)),
            *_general(reads, writes),
        ),
        math=arithmetic_name,
        moved_bytes=_moved(reads, writes),
        flops=2.0 * batch * rows * inner * columns,
    )


def _convolution(op: str, call: OpCall, reads: Tensors, writes: Tensors, arithmetic: Arithmetic) -> Work | None:
    is_backward = op.endswith("_backward")
    args = call.args[1:] if is_backward else call.args
    x, weight, _, stride, padding, dilation, is_transposed, _, groups = args[:9]
    y = call.args[0] if is_backward else writes[0]
    if not isinstance(x, TensorFacts) or not isinstance(weight, TensorFacts):
        return None
    kernel, inputs, outputs = weight.shape[2:], x.shape[1], y.shape[1]
    gradients = call.args[10][:2] if is_backward else (True,)
    positions = x.shape[0] * math.prod((x if is_transposed else y).shape[2:])
    kind = "one" if groups == 1 else "depthwise" if groups == inputs else "several"
    layout = _layout(x) if _layout(x) != "contiguous" or math.prod(kernel) == 1 else _layout(weight)
    arithmetic_name = _math(x, tf32=arithmetic.tf32_convolutions)
    classes = (
        arithmetic_name, layout, str(math.prod(kernel) == 1), kind, str(max(stride) > 1), str(bool(is_transposed)),
        str(max(dilation) > 1), str(len(kernel)), str(len(set(kernel)) > 1), _power(inputs), _power(outputs),
    )  # fmt: skip
    return Work(
        op=op,
        family="convolution_backward" if is_backward else "convolution",
        classes=(*classes, str(bool(gradients[0]))) if is_backward else classes,
        sizes=(
            *_logs(x.shape[0], math.prod(x.shape[2:]), math.prod(y.shape[2:]), math.prod(kernel), groups),
            *_logs(x.shape[2], x.shape[-1], y.shape[2], y.shape[-1]),
            *_logs(inputs, outputs, inputs // groups, outputs // groups),
            *(float(size) for size in (kernel[0], kernel[-1], max(stride), max(padding), max(dilation))),
            *_tiles(1, x.shape[0] * math.prod(y.shape[2:]), outputs),
            *_tiles(1, inputs // groups * math.prod(kernel), outputs),
            *(_factor_of_two(size) for size in (inputs, outputs)),
            *_general(reads, writes),  # a bias is one more kernel
        ),
        math=arithmetic_name,
        moved_bytes=_moved(reads, writes),
        flops=2.0 * positions * (inputs * outputs // groups) * math.prod(kernel) * sum(map(bool, gradients)),
    )


def _attention(op: str, call: OpCall, reads: Tensors, writes: Tensors, arithmetic: Arithmetic) -> Work | None:
    is_backward = op.endswith("_backward")
    query, key = reads[1:3] if is_backward else reads[:2]
    if len(query.shape) != 4 or len(key.shape) != 4:
        return None
    batch, heads, rows, width = query.shape
    columns = key.shape[-2]
    after_dropout = iter(call.args)
    next((value for value in after_dropout if isinstance(value, float)), None)
    is_causal = next((value for value in after_dropout if isinstance(value, bool)), False)
    return Work(
        op=op,
        family="attention",
        classes=(op, query.dtype, str(is_causal)),
        sizes=(*_logs(batch, heads, rows, columns, width), *_tiles(batch * heads, rows, 1), *_general(reads, writes)),
        math=_math(query, tf32=False),  # its kernels do not read the flag
        moved_bytes=_moved(reads, writes),
        flops=(10.0 if is_backward else 4.0) * batch * heads * rows * columns * width,
    )


def _optimizer(op: str, call: OpCall, reads: Tensors, writes: Tensors, arithmetic: Arithmetic) -> Work | None:
    first = call.args[0] if call.args else ()
    count = len(first) if isinstance(first, tuple) else 1
    moved = _moved(reads, writes)
    return Work(
        op=op, family="optimizer", classes=(op, reads[0].dtype), sizes=(*_logs(count, moved / count), float(len(writes))),
        math=reads[0].dtype, moved_bytes=moved,
    )  # fmt: skip


def _recurrent(op: str, call: OpCall, reads: Tensors, writes: Tensors, arithmetic: Arithmetic) -> Work | None:
    x = reads[0]
    mode, hidden, _, layers, is_batch_first = call.args[10:15] if op.endswith("_backward") else call.args[6:11]
    if len(x.shape) != 3:
        return None
    batch, steps = x.shape[:2] if is_batch_first else x.shape[1::-1]
    weights = call.args[1] if isinstance(call.args[1], tuple) else ()
    passes = 2.0 if op.endswith("_backward") else 1.0
    weight_count = sum(weight.numel for weight in weights if len(weight.shape) == 2)
    return Work(
        op=op,
        family="recurrent",
        classes=(op, x.dtype, str(mode)),
        sizes=(*_logs(batch, steps, hidden, layers, weight_count), *_general(reads, writes)),
        math=_math(x, tf32=arithmetic.tf32_convolutions),
        moved_bytes=_moved(reads, writes),
        flops=2.0 * passes * batch * steps * weight_count,
        serial_ns=steps * layers * passes * SERIAL_STEP_NS,
    )


def _memory(op: str, call: OpCall, reads: Tensors, writes: Tensors, arithmetic: Arithmetic) -> Work:
    largest = max(reads or writes, key=lambda tensor: tensor.numel)
    result = writes[0] if writes else largest
    read_bytes, written_bytes = sum(map(_stored_bytes, reads)), sum(map(_stored_bytes, writes))
    main = next((tensor for tensor in reads if tensor.dtype.startswith(("float", "bfloat"))), largest)
    is_elementwise = _is_elementwise(call, (*reads, *writes))
    shape = () if is_elementwise else largest.shape
    return Work(
        op=op,
        family="memory",
        classes=(op, main.dtype, result.dtype, _layout(largest), _layout(result), str(is_elementwise), _flags(call)),
        sizes=(
            *_logs(largest.numel, result.numel),
            *_logs(*reversed((1, 1, 1, 1, *shape)[-4:])),
            float(len(shape)),
            float(len(result.shape)) if shape else 0.0,
            *((_log(result.shape[-1] if result.shape else 1), _factor_of_two(shape[-1])) if shape else (0.0, 0.0)),
            _log(largest.strides[-1]) if shape else 0.0,
            *_general(reads, writes),
        ),
        math=main.dtype,
        moved_bytes=read_bytes + written_bytes,
    )


def _is_elementwise(call: OpCall, tensors: Tensors) -> bool:
    """Whether each element is computed from those at its place, in the order of memory: the shape does not matter.

    An integer argument may name a dimension, as that of a softmax.
    """
    layouts = {(tensor.shape, _layout(tensor)) for tensor in tensors}
    return len(layouts) == 1 and _layout(tensors[0]) != "other" and not any(type(value) is int for value in call.args)


def _flags(call: OpCall) -> str:
    """The boolean arguments, such as whether a normalization trains; they select kernels."""
    return "".join("01"[value] for value in call.args if isinstance(value, bool)) or "-"


Describe = Callable[[str, OpCall, Tensors, Tensors, Arithmetic], Work | None]
_FAMILIES: Final[tuple[tuple[Callable[[str], bool], Describe], ...]] = (
    (lambda op: op in _PRODUCTS, _product),
    (lambda op: op in ("aten.convolution", "aten.convolution_backward"), _convolution),
    (lambda op: op.startswith(_ATTENTION), _attention),
    (lambda op: op.startswith(("aten._foreach_", "aten._fused_ad", "aten._fused_sgd")), _optimizer),
    (lambda op: op in _RECURRENT, _recurrent),
)


def _tensors(values: Iterable[Any]) -> Iterator[TensorFacts]:
    for value in values:
        if isinstance(value, TensorFacts):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)


def _log(size: float) -> float:
    return math.log2(max(size, 1))


def _tiles(batch: int, rows: int, columns: int) -> tuple[float, float, float]:
    """The number of tiles of a product's result, how full the last wave of them is, and how full a tile is in the mean."""
    down, across = -(-rows // _TILE), -(-columns // _TILE)
    tiles = batch * down * across
    waves = -(-tiles // _MULTIPROCESSORS)
    return _log(tiles), tiles / (waves * _MULTIPROCESSORS), rows * columns / (down * across * _TILE**2)


def _general(reads: Tensors, writes: Tensors) -> tuple[float, ...]:
    """How the bytes of a call are spread over tensors."""
    return (
        *_logs(sum(map(_stored_bytes, reads)), sum(map(_stored_bytes, writes))),
        float(len(reads)),
        float(len(writes)),
    )


def _factor_of_two(size: int) -> float:
    """The largest power of two, up to 64, that divides `size`."""
    return float(min(size & -size, 64))


def _logs(*sizes: float) -> tuple[float, ...]:
    return tuple(map(_log, sizes))


def _moved(reads: Tensors, writes: Tensors) -> int:
    return sum(map(_stored_bytes, (*reads, *writes)))


def _stored_bytes(tensor: TensorFacts) -> int:
    """Bytes of the elements that have places of their own (an expanded dimension has a stride of 0)."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.strides, strict=True) if stride)
    return math.prod(sizes) * tensor.element_bytes


def _math(tensor: TensorFacts, *, tf32: bool) -> str:
    names = {"float32": "tf32" if tf32 else "fp32", "bfloat16": "bf16", "float16": "f16"}
    return names.get(tensor.dtype, tensor.dtype)


def _order(matrix: TensorFacts) -> str:
    return "rows" if matrix.strides[-1] == 1 or matrix.shape[-1] == 1 else "columns"


def _power(size: int) -> str:
    """The largest power of two, up to 8, that divides `size`."""
    return str(min(size & -size, 8))


def _alignment(element_bytes: int, lines: Iterable[int]) -> str:
    """Whether all lines are multiples of 16, of 4 or of fewer bytes: fast kernels for products need the first."""
    worst = min((line * element_bytes) & -(line * element_bytes) for line in lines)
    return "16" if worst >= _TENSOR_CORE_BYTES else "4" if worst >= 4 else "2"


def _layout(tensor: TensorFacts) -> str:
    """``contiguous``, ``channels_last``, or ``other``."""
    dimensions = range(len(tensor.shape))
    if _is_dense(tensor, dimensions):
        return "contiguous"
    if len(tensor.shape) > 2 and _is_dense(tensor, (0, *dimensions[2:], 1)):
        return "channels_last"
    return "other"


def _is_dense(tensor: TensorFacts, order: Iterable[int]) -> bool:
    expected = 1
    for dimension in reversed(tuple(order)):
        if tensor.shape[dimension] != 1 and tensor.strides[dimension] != expected:
            return False
        expected *= tensor.shape[dimension]
    return True

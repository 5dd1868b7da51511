"""Reductions: the buffer through which the blocks of a CUDA reduction meet, where it goes over slow dimensions; losses.

How many blocks share an output is decided by ATen/native/cuda/Reduce.cuh (``setReduceConfig``, ``global_memory_size``),
which is followed here; the bytes that each keeps per output differ by the kind of reduction, as seen on an H100.
"""

from __future__ import annotations

import math
from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.scratch import NOTHING, LibraryConfig, OpCall, ScratchBytes, TensorFacts, exactly, rule

_SOURCE: Final = "ATen/native/cuda/Reduce.cuh: setReduceConfig, global_memory_size"
_ACCUMULATED: Final = 4  # float32, which halves are summed in too
_WIDE: Final = frozenset(("float64", "int64"))
_SEEN: Final = "seen on an H100, torch 2.11"
_UNREDUCED: Final = 0
# By loss: where its call says how to reduce, and how many times the elements' bytes it takes reduced and unreduced.
_LOSSES: Final = {
    "aten.mse_loss": (2, 1, 0),
    "aten.smooth_l1_loss": (2, 1, 0),
    "aten.huber_loss": (2, 1, 0),
    "aten.binary_cross_entropy": (3, 1, 0),
    "aten.binary_cross_entropy_with_logits": (4, 2, 1),  # one of the terms too
}
_WITH_INDEX: Final = 16  # a value and its place; Welford's mean, sum of squares and counts take as much


@rule("aten.sum", "aten.mean", "aten.prod", "aten.linalg_vector_norm", "aten.norm")
def reduction(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Partial results in the type that is accumulated in."""
    at = 2 if call.op in ("aten.linalg_vector_norm", "aten.norm") else 1
    return exactly(reduce_bytes(call.args[0], _dims(call, at), device), _SOURCE)


@rule("aten.amax", "aten.amin", "aten.any", "aten.all")
def choice(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Partial results in the tensor's own type."""
    tensor = call.args[0]
    return exactly(reduce_bytes(tensor, _dims(call, 1), device, tensor.element_bytes), _SOURCE)


@rule("aten.argmax", "aten.argmin", "aten.max", "aten.min", "aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def compound(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Partial results that are a value and its place, or a mean with its spread."""
    if len(call.args) > 1 and isinstance(call.args[1], TensorFacts):
        return exactly(0, _SOURCE)  # the larger of two tensors, element by element
    return exactly(reduce_bytes(call.args[0], _dims(call, 1), device, _WITH_INDEX), _SOURCE)


@rule("aten.logsumexp")
def log_sum(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The exponentials, beside the larger of both reductions' buffers."""
    tensor = call.args[0]
    return exactly(tensor.nbytes + reduce_bytes(tensor, _dims(call, 1), device), _SEEN)


@rule(*_LOSSES)
def loss(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The elements' losses before they are reduced."""
    at, reduced, unreduced = _LOSSES[call.op]
    reduction = call.args[at] if len(call.args) > at else call.kwargs.get("reduction", 1)
    copies = unreduced if int(reduction) == _UNREDUCED else reduced
    return exactly(copies * call.args[0].nbytes, _SEEN) if copies else NOTHING


def _dims(call: OpCall, at: int) -> tuple[int, ...]:
    found = call.args[at] if len(call.args) > at else call.kwargs.get("dim", ())
    if isinstance(found, int) and not isinstance(found, bool):
        return (found,)
    return found if isinstance(found, tuple) else ()


def reduce_bytes(tensor: TensorFacts, dims: tuple[int, ...], device: Device, partial_bytes: int = 0) -> int:
    """Bytes of the global buffer of a CUDA reduction of `tensor` over `dims`, all of them when none is given.

    `partial_bytes`: what each block keeps per output; 0 for the type that sums of the tensor are accumulated in.
    """
    rank = len(tensor.shape)
    over = {dim % rank for dim in dims} if dims else set(range(rank))
    sides = list(zip(tensor.strides, tensor.shape, strict=True))
    reduced = [sides[dim] for dim in over if sides[dim][1] > 1]
    kept = sorted(sides[dim] for dim in range(rank) if dim not in over and sides[dim][1] > 1)
    if not reduced or not kept or min(reduced)[0] < kept[0][0]:
        return 0  # over the fastest dimension: the buffer is negligible
    outputs = math.prod(size for _, size in kept)
    inputs = math.prod(size for _, size in reduced)
    vector = _vector(kept, reduced)
    most_threads = 512 // vector
    width, height = max(outputs // vector, 1), inputs
    across = _power_below(width) if width < most_threads else most_threads
    down = _power_below(height) if height < most_threads else most_threads
    block_x = min(across, 32)
    block_y = min(down, most_threads // block_x)
    block_x = min(across, most_threads // block_y)
    stride_out, stride_in, shares = block_x, 1, False
    if inputs >= block_y * 16 or inputs >= 256:
        stride_in, shares = block_y, True
    else:
        stride_out *= block_y
    per_thread = -(-inputs // stride_in)
    target = device.multiprocessors.value * (device.architecture.threads.value // (block_x * block_y))
    grid = -(-width // stride_out)
    if not shares or per_thread < 256 or grid > target:
        return 0
    blocks = max(min(-(-target // grid), -(-per_thread // 16)), -(-per_thread // 256))
    kept_bytes = partial_bytes or (8 if tensor.dtype in _WIDE else _ACCUMULATED)
    return kept_bytes * outputs * blocks * block_x * vector if blocks > 1 else 0


def _vector(kept: list[tuple[int, int]], reduced: list[tuple[int, int]]) -> int:
    if kept[0][0] != 1:
        return 1
    inner = kept[0][1]
    rest: list[int] = []
    for stride, size in kept[1:]:
        if stride == inner and not rest:
            inner *= size
        else:
            rest.append(stride)
    vector = 4
    for number in [inner, *rest, *(stride for stride, _ in reduced)]:
        while number % vector:
            vector //= 2
    return vector


def _power_below(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number > 0 else 1

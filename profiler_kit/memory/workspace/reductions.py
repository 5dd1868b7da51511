"""Workspace of reductions over slow dimensions: the global buffer of partial results of blocks. Also of losses, and of
normalizations and softmax: copies of strided tensors, and one full-size product.

Source: ATen/native/cuda/Reduce.cuh (``setReduceConfig``, ``global_memory_size``) for the number of blocks per output. The
bytes per block and output depend on the kind of reduction and were measured on an H100.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.workspace import NOTHING, LibraryConfig, WorkspaceBytes, exactly, rule
from profiler_kit.memory.workspace.geometry import has_channels_last
from profiler_kit.records.calls import OpCall, TensorFacts

_SOURCE: Final = "ATen/native/cuda/Reduce.cuh: setReduceConfig, global_memory_size"
_ACCUMULATED: Final = 4  # float32, also for sums in half precision
_HALVES: Final = frozenset(("float16", "bfloat16"))
_WIDE: Final = frozenset(("float64", "int64"))
_MEASURED: Final = "measured on an H100, torch 2.11"
_UNREDUCED: Final = 0
# (index of the `reduction` argument, multiples of the input's bytes if reduced, if not reduced)
_LOSSES: Final = {
    "aten.mse_loss": (2, 1, 0),
    "aten.smooth_l1_loss": (2, 1, 0),
    "aten.huber_loss": (2, 1, 0),
    "aten.binary_cross_entropy_with_logits": (4, 2, 1),  # includes a copy of one term
}
_WITH_INDEX: Final = 16  # bytes of a value and its index; Welford's mean, sum of squares and count have the same size


@rule("aten.sum", "aten.mean", "aten.prod", "aten.linalg_vector_norm", "aten.norm")
def reduction(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Partial results in the accumulation dtype, and a copy of the input in the result's dtype if no kernel converts."""
    at = 2 if call.op in ("aten.linalg_vector_norm", "aten.norm") else 1
    tensor = call.args[0]
    converted = _converted_bytes(tensor, call) if call.op in ("aten.sum", "aten.prod") else 0
    return exactly(converted + reduce_bytes(tensor, _dims(call, at), device), _SOURCE)


def _converted_bytes(tensor: TensorFacts, call: OpCall) -> int:
    """Bytes of the input in the result's dtype (ATen/native/ReduceOpsUtils.h, ``make_reduction``); 0 without conversion.

    Kernels read half precision for a float32 result. A sum of booleans, as in the gradient of ``amax``, is one of int64.
    """
    out = call.outputs[0] if call.outputs else tensor
    if (
        not isinstance(out, TensorFacts)
        or out.dtype == tensor.dtype
        or (tensor.dtype in _HALVES and out.dtype == "float32")
    ):
        return 0
    return tensor.numel * out.element_bytes


@rule("aten.amax", "aten.amin", "aten.any", "aten.all")
def elementwise_choice(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Partial results in the tensor's dtype."""
    tensor = call.args[0]
    return exactly(reduce_bytes(tensor, _dims(call, 1), device, tensor.element_bytes), _SOURCE)


@rule("aten.argmax", "aten.argmin", "aten.max", "aten.min", "aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def indexed_or_variance(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Partial results of a value with its index, or of a mean with its variance."""
    if len(call.args) > 1 and isinstance(call.args[1], TensorFacts):
        return exactly(0, _SOURCE)  # elementwise maximum of two tensors
    return exactly(reduce_bytes(call.args[0], _dims(call, 1), device, _WITH_INDEX), _SOURCE)


@rule("aten.logsumexp")
def logsumexp(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """The exponentials, and the larger buffer of the two reductions."""
    tensor = call.args[0]
    return exactly(tensor.nbytes + reduce_bytes(tensor, _dims(call, 1), device), _MEASURED)


@rule(*_LOSSES)
def elementwise_loss(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """The losses of the elements before the reduction."""
    at, reduced, unreduced = _LOSSES[call.op]
    reduction = call.args[at] if len(call.args) > at else call.kwargs.get("reduction", 1)
    copies = unreduced if int(reduction) == _UNREDUCED else reduced
    return exactly(copies * call.args[0].nbytes, _MEASURED) if copies else NOTHING


def _dims(call: OpCall, at: int) -> tuple[int, ...]:
    dims = call.args[at] if len(call.args) > at else call.kwargs.get("dim", ())
    if isinstance(dims, int) and not isinstance(dims, bool):
        return (dims,)
    return dims if isinstance(dims, tuple) else ()


def reduce_bytes(tensor: TensorFacts, dims: tuple[int, ...], device: Device, partial_bytes: int = 0) -> int:
    """Bytes of the global buffer of a CUDA reduction of `tensor` over `dims`; () means all dimensions.

    `partial_bytes`: bytes per block and output; 0 means the size of the accumulation dtype.
    """
    rank = len(tensor.shape)
    over = {dim % rank for dim in dims} if dims else set(range(rank))
    sides = list(zip(tensor.strides, tensor.shape, strict=True))
    reduced = [sides[dim] for dim in over if sides[dim][1] > 1]
    outer = sorted(sides[dim] for dim in range(rank) if dim not in over and sides[dim][1] > 1)
    if not reduced or not outer or min(reduced)[0] < outer[0][0]:
        return 0  # over the fastest dimension: the buffer is negligible
    outputs = math.prod(size for _, size in outer)
    inputs = math.prod(size for _, size in reduced)
    vector = _vector_width(outer, reduced)
    max_threads = 512 // vector
    width, height = max(outputs // vector, 1), inputs
    across = _power_of_two_below(width) if width < max_threads else max_threads
    down = _power_of_two_below(height) if height < max_threads else max_threads
    block_x = min(across, 32)
    block_y = min(down, max_threads // block_x)
    block_x = min(across, max_threads // block_y)
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
    partial_bytes = partial_bytes or (8 if tensor.dtype in _WIDE else _ACCUMULATED)
    return partial_bytes * outputs * blocks * block_x * vector if blocks > 1 else 0


def _vector_width(outer: list[tuple[int, int]], reduced: list[tuple[int, int]]) -> int:
    if outer[0][0] != 1:
        return 1
    inner = outer[0][1]
    strides: list[int] = []
    for stride, size in outer[1:]:
        if stride == inner and not strides:
            inner *= size
        else:
            strides.append(stride)
    vector = 4
    for number in [inner, *strides, *(stride for stride, _ in reduced)]:
        while number % vector:
            vector //= 2
    return vector


def _power_of_two_below(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number > 0 else 1


_PARTIAL_SHARE: Final = 0.04  # of the input: batch statistics per block, with channels last


# (float32 bytes per sample and channel, number of leading operands that are copied if they are strided)
_NORMALIZATIONS: Final[Mapping[str, tuple[int, int]]] = {
    "aten.native_layer_norm": (0, 1),
    "aten.native_layer_norm_backward": (0, 2),
    "aten.native_group_norm": (8, 1),  # a scale and a shift
    "aten.native_group_norm_backward": (12, 2),  # three numbers
}


@rule("aten._softmax_backward_data")
def softmax_backward(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """The product of gradient and output."""
    return exactly(call.args[0].nbytes, _MEASURED)


@rule(*_NORMALIZATIONS)
def normalization(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """float32 numbers per sample and channel; copies of strided gradients and inputs."""
    channel_bytes, operands = _NORMALIZATIONS[call.op]
    rows = math.prod(call.args[operands - 1].shape[:2])
    return exactly(channel_bytes * rows + sum(map(copy_bytes, call.args[:operands])), _MEASURED)


@rule(
    "aten.cudnn_batch_norm", "aten.cudnn_batch_norm_backward",
    "aten.native_batch_norm", "aten.native_batch_norm_backward",
)  # fmt: skip
def batch_norm(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Partial statistics with channels last; else zero."""
    tensor = call.args[0]
    if not has_channels_last(tensor):
        return NOTHING
    return WorkspaceBytes(0, int(0.6 * _PARTIAL_SHARE * tensor.nbytes), int(_PARTIAL_SHARE * tensor.nbytes), _MEASURED)


def copy_bytes(tensor: TensorFacts) -> int:
    """Bytes of a contiguous copy of `tensor`; 0 if it is contiguous."""
    expected = 1
    for stride, size in zip(reversed(tensor.strides), reversed(tensor.shape), strict=True):
        if size != 1 and stride != expected:
            return tensor.nbytes
        expected *= size
    return 0

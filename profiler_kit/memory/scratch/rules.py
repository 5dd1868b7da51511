"""Scratch of reductions, convolutions, normalisations, attention and recurrent layers."""

from __future__ import annotations

import math
from typing import Any, Final

from profiler_kit.memory.profiles import Profile
from profiler_kit.memory.scratch import NOTHING, LibraryConfig, OpCall, ScratchBytes, TensorFacts, exactly, rule

_REDUCE: Final = "ATen/native/cuda/Reduce.cuh: setReduceConfig, global_memory_size"
_CUDNN: Final = "copies in NHWC, seen on an H100 with cuDNN 9.19"
_MEASURED: Final = "seen on an H100, torch 2.11"


@rule("aten.sum", "aten.mean")
def reduction(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """The buffer through which the blocks of a reduction over slow dimensions meet."""
    dims = call.args[1] if len(call.args) > 1 and isinstance(call.args[1], tuple) else ()
    return exactly(reduce_bytes(call.args[0], dims, profile), _REDUCE)


def reduce_bytes(tensor: TensorFacts, dims: tuple[int, ...], profile: Profile) -> int:
    """Bytes of the global buffer of a CUDA reduction of `tensor` over `dims`, all of them when none is given."""
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
    target = profile.multiprocessors.value * (profile.threads.value // (block_x * block_y))
    grid = -(-width // stride_out)
    if not shares or per_thread < 256 or grid > target:
        return 0
    blocks = max(min(-(-target // grid), -(-per_thread // 16)), -(-per_thread // 256))
    accumulator = 8 if tensor.dtype in ("float64", "int64") else 4
    return accumulator * outputs * blocks * block_x * vector if blocks > 1 else 0


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


@rule("aten.convolution")
def convolution(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """Copies of input, weight and output in NHWC."""
    return _convolution(call.args[0], call.args[1], call.outputs[0], call.args[8], pointwise=False)


@rule("aten.convolution_backward")
def convolution_backward(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """Copies of gradient, input and weight in NHWC."""
    gradient, x, weight = call.args[:3]
    return _convolution(x, weight, gradient, call.args[9], pointwise=weight.element_bytes == 4)


def _convolution(x: Any, weight: Any, out: Any, groups: int, *, pointwise: bool) -> ScratchBytes:
    if groups != 1 or len(x.shape) != 4 or not (pointwise or math.prod(weight.shape[2:]) > 1):
        return NOTHING
    likely = sum(_nhwc_bytes(tensor) for tensor in (x, weight, out))
    return ScratchBytes(0, likely, 2 * likely, _CUDNN)


def _nhwc_bytes(tensor: TensorFacts) -> int:
    multiple = 16 // tensor.element_bytes
    batch, channels, *sides = tensor.shape
    return batch * -(-channels // multiple) * multiple * math.prod(sides) * tensor.element_bytes


@rule("aten._softmax_backward_data")
def softmax_backward(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """The product of gradient and output."""
    return exactly(call.args[0].nbytes, _MEASURED)


@rule("aten.native_layer_norm")
def layer_norm(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """A contiguous copy of an input that is not."""
    return exactly(_copied(call.args[0]), _MEASURED)


@rule("aten.native_layer_norm_backward")
def layer_norm_backward(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """Contiguous copies of gradient and input that are not."""
    return exactly(_copied(call.args[0]) + _copied(call.args[1]), _MEASURED)


def _copied(tensor: TensorFacts) -> int:
    expected = 1
    for stride, size in zip(reversed(tensor.strides), reversed(tensor.shape), strict=True):
        if size != 1 and stride != expected:
            return tensor.nbytes
        expected *= size
    return 0


@rule("aten._scaled_dot_product_flash_attention_backward", "aten._scaled_dot_product_cudnn_attention_backward")
def flash_backward(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """The query's gradient in float32, and a row of sums."""
    query, key = call.args[1], call.args[2]
    nbytes = query.numel * 4 + query.numel // query.shape[-1] * 4
    if key.shape[1] != query.shape[1]:
        nbytes += 2 * query.nbytes
    return ScratchBytes(0, nbytes, 2 * nbytes, _MEASURED)


@rule("aten._scaled_dot_product_efficient_attention_backward")
def efficient_backward(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """The query's gradient in float32, twice without causality, and rows of sums."""
    query = call.args[1]
    is_causal = bool(call.args[11]) if len(call.args) > 11 else False
    nbytes = query.numel * 4 * (1 if is_causal else 2) + query.numel // query.shape[-1] * 8
    return ScratchBytes(0, nbytes, 2 * nbytes, _MEASURED)


@rule("aten._cudnn_rnn", "aten._cudnn_rnn_backward")
def recurrent(call: OpCall, profile: Profile, config: LibraryConfig) -> ScratchBytes:
    """Gates of all layers, or their gradients."""
    told = call.kwargs
    states = told["rows"] * told["hidden"] * told["directions"] * told["element_bytes"] * told["depth"]
    likely = 8 * states
    if told["packed"] or told["kind"] not in ("lstm", "gru"):
        return ScratchBytes(0, likely, 2 * likely, "no measurement of this layer; taken from LSTM's")
    return ScratchBytes(likely * 3 // 4, likely, likely * 5 // 4, _MEASURED)

"""Pooling: 1 FLOP (compare or add) per kernel position and output element. Resampling: a weighted sum of taps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from profiler_kit.counting.arithmetic import (
    contraction,
    first_tensor,
    free,
    is_float,
    numel,
    per_argument,
    per_element,
    per_result,
)
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def window(kernel: int | Sequence[int], dims: int) -> int:
    """Positions of a kernel. `kernel`: one size for all dimensions, or one per dimension."""
    sizes = (kernel,) if isinstance(kernel, int) else tuple(kernel)
    return prod(sizes) if len(sizes) == dims else sizes[0] ** dims


def adaptive_positions(x: TensorSpec, y: TensorSpec, dims: int) -> int:
    """Input positions in the windows of all output elements. Windows overlap if the sizes do not divide.

    Source: aten/src/ATen/native/AdaptivePooling.h, start_index and end_index.
    """
    total = prod(y.shape[: len(y.shape) - dims])
    for size, outputs in zip(x.shape[-dims:], y.shape[-dims:], strict=True):
        total *= sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))
    return total


def per_window(dims: int) -> Callable[..., Cost]:
    """A formula: 1 FLOP per kernel position and output element."""
    return lambda x, kernel, *_, out, **__: per_element(first_tensor(out), window(kernel, dims))


def per_window_backward(dims: int) -> Callable[..., Cost]:
    """A formula: 1 add per kernel position and gradient element."""
    return lambda grad, x, kernel, *_, out, **__: per_element(grad, window(kernel, dims))


def per_adaptive_window(dims: int) -> Callable[..., Cost]:
    """A formula: 1 FLOP per position in the window of each output element."""

    def cost(x: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
        y = first_tensor(out)
        return Cost() if y is None or not is_float(x) else Cost(flops=adaptive_positions(x, y, dims))

    return cost


def per_adaptive_window_backward(dims: int) -> Callable[..., Cost]:
    """A formula: 1 add per window position."""
    return lambda grad, x, *_, out, **__: Cost(flops=adaptive_positions(x, grad, dims))


formula("aten.max_pool2d_with_indices", "aten.mkldnn_max_pool2d", "aten.avg_pool2d", "aten.quantized_max_pool2d")(
    per_window(2)
)
formula("aten.max_pool3d_with_indices", "aten.mkldnn_max_pool3d", "aten.avg_pool3d")(per_window(3))
formula("aten.avg_pool2d_backward")(per_window_backward(2))
formula("aten.avg_pool3d_backward")(per_window_backward(3))
formula("aten._adaptive_avg_pool2d", "aten.adaptive_max_pool2d", "aten.mkldnn_adaptive_avg_pool2d")(
    per_adaptive_window(2)
)
formula("aten._adaptive_avg_pool3d", "aten.adaptive_max_pool3d")(per_adaptive_window(3))
formula("aten._adaptive_avg_pool2d_backward", "aten.mkldnn_adaptive_avg_pool2d_backward")(
    per_adaptive_window_backward(2)
)
formula("aten._adaptive_avg_pool3d_backward", "aten.adaptive_avg_pool3d_backward")(per_adaptive_window_backward(3))
# one add per gradient element, at the position that was the maximum
formula(
    "aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward",
    "aten.adaptive_max_pool2d_backward", "aten.adaptive_max_pool3d_backward",
    "aten.fractional_max_pool2d_backward", "aten.fractional_max_pool3d_backward",
    "aten.mkldnn_max_pool2d_backward", "aten.mkldnn_max_pool3d_backward", "aten.max_pool2d_backward",
)(per_argument(0))  # fmt: skip


@formula("aten.fractional_max_pool2d", "aten.fractional_max_pool3d")
def fractional_max_pool(x: TensorSpec, kernel: Sequence[int], *_: Any, out: Any, **__: Any) -> Cost:
    """1 FLOP per kernel position and output element."""
    return per_element(first_tensor(out), prod(kernel))


# Forward: a product for each tap of each output element, and their sum. Backward: multiply and add for each tap of each
# gradient element. Not counted: computing the interpolation weights.
formula("aten.upsample_linear1d")(per_result(3))  # two taps
formula("aten.upsample_bilinear2d", "aten._upsample_bilinear2d_aa")(per_result(7))  # four
formula("aten.upsample_trilinear3d")(per_result(15))  # eight
formula("aten.upsample_bicubic2d", "aten._upsample_bicubic2d_aa")(per_result(31))  # sixteen
formula("aten._upsample_lanczos2d_aa")(per_result(71))  # thirty-six
formula("aten.upsample_linear1d_backward")(per_argument(0, 4))
formula("aten.upsample_bilinear2d_backward", "aten._upsample_bilinear2d_aa_backward")(per_argument(0, 8))
formula("aten.upsample_trilinear3d_backward")(per_argument(0, 16))
formula("aten.upsample_bicubic2d_backward", "aten._upsample_bicubic2d_aa_backward")(per_argument(0, 32))
formula("aten._upsample_lanczos2d_aa_backward")(per_argument(0, 72))
# one add per gradient element; the forward only copies
formula(
    "aten.upsample_nearest1d_backward", "aten.upsample_nearest2d_backward", "aten.upsample_nearest3d_backward",
    "aten._upsample_nearest_exact1d_backward", "aten._upsample_nearest_exact2d_backward",
    "aten._upsample_nearest_exact3d_backward",
)(per_argument(0))  # fmt: skip

# FLOPs per element by interpolation_mode of grid_sampler (0 bilinear, 1 nearest, 2 bicubic; bicubic in two dimensions only).
# Forward: the taps of the interpolation. Backward, per gradient: multiply and add per tap, or one add. Not counted: the
# arithmetic of the grid.
TAPS: Final = {2: (7, 0, 31), 3: (15, 0, 0)}
TAPS_BACKWARD: Final = {2: (8, 1, 32), 3: (16, 1, 1)}


def grid_sampler(dims: int) -> Callable[..., Cost]:
    """A formula: the taps of each output element."""
    return lambda x, grid, mode=0, *_, out: per_element(out, TAPS[dims][mode])


def grid_sampler_backward(dims: int) -> Callable[..., Cost]:
    """A formula: the taps of each gradient element, for each gradient in the output mask (both without a mask)."""

    def cost(
        grad: TensorSpec, x: TensorSpec, grid: TensorSpec, mode: int = 0, *others: Any, out: Any, **_: Any
    ) -> Cost:
        mask = next((item for item in others if isinstance(item, Sequence)), (True, True))
        return per_element(grad, TAPS_BACKWARD[dims][mode] * sum(map(bool, mask)))

    return cost


formula("aten.grid_sampler_2d", "aten._grid_sampler_2d_cpu_fallback", "aten.cudnn_grid_sampler")(grid_sampler(2))
formula("aten.grid_sampler_3d")(grid_sampler(3))
formula(
    "aten.grid_sampler_2d_backward", "aten._grid_sampler_2d_cpu_fallback_backward", "aten.cudnn_grid_sampler_backward"
)(grid_sampler_backward(2))
formula("aten.grid_sampler_3d_backward")(grid_sampler_backward(3))
formula("aten.im2col")(free)  # only copies
formula("aten.col2im")(per_argument(0))  # one add per input element


@formula("aten.affine_grid_generator", "aten.cudnn_affine_grid_generator")
def affine_grid(theta: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """Multiply every position by a (d, d + 1) matrix: d + 1 MACs per coordinate. Shapes: out (n, ..., d)."""
    return contraction(numel(out) * theta.shape[-1], theta)


@formula("aten.cudnn_affine_grid_generator_backward")
def affine_grid_backward(grad: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """The MACs of forward."""
    return contraction(numel(grad) * out.shape[-1], grad)

"""Pooling: one FLOP (compare or add) per kernel position and output element. Resampling: a weighted sum of its taps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from profiler_kit.counting.arithmetic import contraction, first, is_float, numel, per_element
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def window(kernel: int | Sequence[int], dims: int) -> int:
    """Positions of a kernel given as one number, as a list of one, or per dimension."""
    sizes = (kernel,) if isinstance(kernel, int) else tuple(kernel)
    return prod(sizes) if len(sizes) == dims else sizes[0] ** dims


def adaptive_positions(x: TensorSpec, y: TensorSpec, dims: int) -> int:
    """Input positions that all output elements together look at: windows overlap where sizes do not divide.

    Source: aten/src/ATen/native/AdaptivePooling.h, start_index and end_index.
    """
    total = prod(y.shape[: len(y.shape) - dims])
    for size, outputs in zip(x.shape[-dims:], y.shape[-dims:], strict=True):
        total *= sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))
    return total


@formula("aten.max_pool2d_with_indices", "aten.mkldnn_max_pool2d", "aten.avg_pool2d",
         "aten.quantized_max_pool2d")  # fmt: skip
def pool2d(x: TensorSpec, kernel: Sequence[int], *_: Any, out: Any, **__: Any) -> Cost:
    """The kernel's positions per output element."""
    return per_element(first(out), window(kernel, 2))


@formula("aten.max_pool3d_with_indices", "aten.mkldnn_max_pool3d", "aten.avg_pool3d")
def pool3d(x: TensorSpec, kernel: Sequence[int], *_: Any, out: Any, **__: Any) -> Cost:
    """The kernel's positions per output element."""
    return per_element(first(out), window(kernel, 3))


@formula("aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward",
         "aten.adaptive_max_pool2d_backward", "aten.adaptive_max_pool3d_backward",
         "aten.fractional_max_pool2d_backward", "aten.fractional_max_pool3d_backward",
         "aten.mkldnn_max_pool2d_backward", "aten.mkldnn_max_pool3d_backward", "aten.max_pool2d_backward")  # fmt: skip
def max_pool_backward(grad: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """One add per gradient element, at the position that was the maximum."""
    return per_element(grad)


@formula("aten.avg_pool2d_backward")
def avg_pool2d_backward(grad: TensorSpec, x: TensorSpec, kernel: Sequence[int], *_: Any, out: Any, **__: Any) -> Cost:
    """One add per kernel position and gradient element."""
    return per_element(grad, window(kernel, 2))


@formula("aten.avg_pool3d_backward")
def avg_pool3d_backward(grad: TensorSpec, x: TensorSpec, kernel: Sequence[int], *_: Any, out: Any, **__: Any) -> Cost:
    """One add per kernel position and gradient element."""
    return per_element(grad, window(kernel, 3))


@formula("aten._adaptive_avg_pool2d", "aten.adaptive_max_pool2d", "aten.mkldnn_adaptive_avg_pool2d")
def adaptive_pool2d(x: TensorSpec, size: Sequence[int], *, out: Any, **_: Any) -> Cost:
    """The positions of every output element's window."""
    y = first(out)
    return Cost() if y is None or not is_float(x) else Cost(flops=adaptive_positions(x, y, 2))


@formula("aten._adaptive_avg_pool3d", "aten.adaptive_max_pool3d")
def adaptive_pool3d(x: TensorSpec, size: Sequence[int], *, out: Any, **_: Any) -> Cost:
    """The positions of every output element's window."""
    y = first(out)
    return Cost() if y is None or not is_float(x) else Cost(flops=adaptive_positions(x, y, 3))


@formula("aten._adaptive_avg_pool2d_backward", "aten.mkldnn_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(grad: TensorSpec, x: TensorSpec, *, out: Any, **_: Any) -> Cost:
    """One add per window position."""
    return Cost(flops=adaptive_positions(x, grad, 2))


@formula("aten._adaptive_avg_pool3d_backward", "aten.adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(grad: TensorSpec, x: TensorSpec, *, out: Any, **_: Any) -> Cost:
    """One add per window position."""
    return Cost(flops=adaptive_positions(x, grad, 3))


@formula("aten.fractional_max_pool2d", "aten.fractional_max_pool3d")
def fractional_max_pool(x: TensorSpec, kernel: Sequence[int], *_: Any, out: Any, **__: Any) -> Cost:
    """The kernel's positions per output element."""
    return per_element(first(out), prod(kernel))


@formula("aten.upsample_linear1d")
def upsample_linear1d(x: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Two taps per output element; the weights themselves are not counted."""
    return per_element(out, 3)


@formula("aten.upsample_bilinear2d", "aten._upsample_bilinear2d_aa")
def upsample_bilinear2d(x: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Four taps per output element."""
    return per_element(out, 7)


@formula("aten.upsample_trilinear3d")
def upsample_trilinear3d(x: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Eight taps per output element."""
    return per_element(out, 15)


@formula("aten.upsample_bicubic2d", "aten._upsample_bicubic2d_aa")
def upsample_bicubic2d(x: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Sixteen taps per output element."""
    return per_element(out, 31)


@formula("aten.upsample_linear1d_backward")
def upsample_linear1d_backward(grad: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Multiply and add for each tap of each gradient element."""
    return per_element(grad, 4)


@formula("aten.upsample_bilinear2d_backward", "aten._upsample_bilinear2d_aa_backward")
def upsample_bilinear2d_backward(grad: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Multiply and add for each tap of each gradient element."""
    return per_element(grad, 8)


@formula("aten.upsample_trilinear3d_backward")
def upsample_trilinear3d_backward(grad: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Multiply and add for each tap of each gradient element."""
    return per_element(grad, 16)


@formula("aten.upsample_bicubic2d_backward", "aten._upsample_bicubic2d_aa_backward")
def upsample_bicubic2d_backward(grad: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Multiply and add for each tap of each gradient element."""
    return per_element(grad, 32)


@formula("aten.upsample_nearest1d_backward", "aten.upsample_nearest2d_backward", "aten.upsample_nearest3d_backward",
         "aten._upsample_nearest_exact1d_backward", "aten._upsample_nearest_exact2d_backward",
         "aten._upsample_nearest_exact3d_backward")  # fmt: skip
def upsample_nearest_backward(grad: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """One add per gradient element; the forward only copies."""
    return per_element(grad)


# interpolation_mode of grid_sampler: 0 bilinear, 1 nearest, 2 bicubic
@formula("aten.grid_sampler_2d", "aten._grid_sampler_2d_cpu_fallback", "aten.cudnn_grid_sampler")
def grid_sampler_2d(x: TensorSpec, grid: TensorSpec, mode: int = 0, *_: Any, out: TensorSpec) -> Cost:
    """The taps of the interpolation per output element; the grid's own arithmetic is not counted."""
    return per_element(out, (7, 0, 31)[mode])


@formula("aten.grid_sampler_3d")
def grid_sampler_3d(x: TensorSpec, grid: TensorSpec, mode: int = 0, *_: Any, out: TensorSpec) -> Cost:
    """The taps of the interpolation per output element."""
    return per_element(out, (15, 0, 0)[mode])


@formula("aten.grid_sampler_2d_backward", "aten._grid_sampler_2d_cpu_fallback_backward",
         "aten.cudnn_grid_sampler_backward")  # fmt: skip
def grid_sampler_2d_backward(
    grad: TensorSpec, x: TensorSpec, grid: TensorSpec, mode: int = 0, *rest: Any, out: Any, **_: Any
) -> Cost:
    """Multiply and add for each tap, for each of the two gradients (nearest: one add)."""
    return per_element(grad, (8, 1, 32)[mode] * wanted_gradients(rest))


@formula("aten.grid_sampler_3d_backward")
def grid_sampler_3d_backward(
    grad: TensorSpec, x: TensorSpec, grid: TensorSpec, mode: int = 0, *rest: Any, out: Any, **_: Any
) -> Cost:
    """Multiply and add for each tap, for each of the two gradients (nearest: one add)."""
    return per_element(grad, (16, 1, 1)[mode] * wanted_gradients(rest))


def wanted_gradients(rest: Sequence[Any]) -> int:
    """How many gradients an output mask among the arguments asks for; both where there is none."""
    mask = next((item for item in rest if isinstance(item, Sequence)), (True, True))
    return sum(bool(wanted) for wanted in mask)


@formula("aten.im2col")
def im2col(x: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """Only copies."""
    return Cost()


@formula("aten.col2im")
def col2im(x: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """One add per input element."""
    return Cost(flops=numel(x) if is_float(x) else 0)


@formula("aten.affine_grid_generator", "aten.cudnn_affine_grid_generator")
def affine_grid(theta: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """A product of every position with a (d, d + 1) matrix: d + 1 MACs per coordinate. Shapes: out (n, ..., d)."""
    return contraction(numel(out) * theta.shape[-1], theta)


@formula("aten.cudnn_affine_grid_generator_backward")
def affine_grid_backward(grad: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """As many MACs as forward."""
    return contraction(numel(grad) * out.shape[-1], grad)


@formula("aten._upsample_lanczos2d_aa")
def upsample_lanczos2d(x: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Thirty-six taps per output element."""
    return per_element(out, 71)


@formula("aten._upsample_lanczos2d_aa_backward")
def upsample_lanczos2d_backward(grad: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Multiply and add for each tap of each gradient element."""
    return per_element(grad, 72)

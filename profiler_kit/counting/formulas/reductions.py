"""Reductions and scans: 1 FLOP per input element and operation."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, prod
from typing import Any

from profiler_kit.counting.arithmetic import per_argument
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec

# one add, multiplication or compare per input element
formula(
    "aten.sum", "aten.nansum", "aten.mean", "aten.prod", "aten.amax", "aten.amin", "aten.aminmax", "aten.max",
    "aten.min", "aten.max.dim", "aten.min.dim", "aten.cumsum", "aten.cumprod", "aten.cummax", "aten.cummin",
    "aten._cummax_helper", "aten._cummin_helper", "aten.trace", "aten.median", "aten.nanmedian", "aten.diff", "aten._aminmax",
)(per_argument(0))  # fmt: skip
# mean (1), then subtract, square, add (3)
formula("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")(per_argument(0, 4))
# square (or power, or exponential) and add
formula(
    "aten.linalg_vector_norm", "aten.norm", "aten.native_norm", "aten.linalg__powsum", "aten.logsumexp",
    "aten.logcumsumexp", "aten._logcumsumexp",
)(per_argument(0, 2))  # fmt: skip
formula("aten.renorm")(per_argument(0, 3))  # square, add, scale
formula("aten.dist")(per_argument(0, 3))  # subtract, square, add


@formula("aten._fft_c2c", "aten._fft_r2c", "aten._fft_c2r")
def fft(x: TensorSpec, dims: Sequence[int], *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """5 N log2 N for a complex transform of N points, half of that if input or output is real.

    Source: the usual nominal count of FFT benchmarks, https://www.fftw.org/speed/method.html.
    """
    real = out if not out.dtype.startswith("complex") else x
    points = prod(real.shape[dim] for dim in dims)
    transforms = prod(real.shape) // points if points else 0
    complex_to_complex = x.dtype.startswith("complex") and out.dtype.startswith("complex")
    flops = 5 * transforms * round(points * log2(points)) if points else 0
    return Cost(flops=flops if complex_to_complex else flops // 2)

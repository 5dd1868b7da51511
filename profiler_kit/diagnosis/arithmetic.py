"""The arithmetic (fp32, tf32, bf16 ...) of a layer's contractions, which decides the peak that they are compared with.

The names of a run's kernels come first. Without them, the arithmetic follows from dtype, autocast and torch's flags:
float32 convolutions and recurrent layers use TF32 unless ``cudnn.allow_tf32`` is off, float32 matrix products only if
``cuda.matmul.allow_tf32`` is on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.counts import CountPhase, ModuleNode, StaticCount
from profiler_kit.records.families import LAYOUT
from profiler_kit.records.roofline import Roof
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.traces import KernelStat

_BY_DTYPE: Final = {"float32": "fp32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
_CUDNN_OPS: Final = ("conv", "rnn", "lstm", "gru")  # parts of op and class names that cudnn.allow_tf32 applies to
_CONTRACTIONS: Final = ("conv", "gemm", "attention", "rnn")  # kernel families that multiply and accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class StepArithmetic:
    """The arithmetic of a step: of convolutions and recurrent layers, of all other contractions, and the reason in words."""

    convolution: str
    product: str
    reason: str

    def of(self, is_convolution: bool) -> str:
        """Return the arithmetic of convolutions, or of other contractions."""
        return self.convolution if is_convolution else self.product


def step_arithmetic(target: TargetInfo, roof: Roof, run: ConfigRun | None) -> StepArithmetic:
    """Return the arithmetic of `target`'s contractions with the flags of `run` (None: torch's defaults) on `roof`'s device."""
    if target.amp is not None:
        math = _BY_DTYPE.get(target.amp, target.amp)
        return StepArithmetic(convolution=math, product=math, reason=f"{math}, because of autocast to {target.amp}")
    dtype = target.dtype or next((i.dtype for i in target.inputs if i.dtype in _BY_DTYPE), "float32")
    math = _BY_DTYPE.get(dtype, dtype)
    if math != "fp32" or roof.peak("tf32") is None:
        return StepArithmetic(convolution=math, product=math, reason=f"{math}, because the tensors are {dtype}")
    convolution = "fp32" if run is not None and run.config.allow_tf32 is False else "tf32"
    flags = run.environment.flags if run is not None and run.environment is not None else ()
    product = "tf32" if any(f.name == "cuda.matmul.allow_tf32" and f.value == "True" for f in flags) else "fp32"
    source = "torch's defaults" if run is None else f"the flags of {run.config.name}"
    return StepArithmetic(
        convolution=convolution,
        product=product,
        reason=f"{convolution} for convolutions and recurrent layers, {product} for other products, by {source}",
    )


def uses_cudnn(node: ModuleNode, static: StaticCount) -> bool:
    """Return whether the contractions of `node` are convolutions or recurrent layers; by class if the model has both kinds."""
    kinds = {is_cudnn_op(total.op) for total in static.ops if total.cost is not None and total.cost.macs}
    if len(kinds) == 1:
        return kinds.pop()
    return is_cudnn_op(node.class_name)


def main_kernel_math(kernels: Iterable[KernelStat]) -> str | None:
    """Return the arithmetic with the most time among contraction kernels; None if no kernel name shows it."""
    times: Counter[str] = Counter()
    for kernel in kernels:
        if kernel.math is not None and kernel.family.startswith(_CONTRACTIONS) and kernel.family != LAYOUT:
            times[kernel.math] += kernel.kernel_ns
    return min(times, key=lambda math: (-times[math], math)) if times else None


def contraction_math(
    node: ModuleNode, phase: CountPhase, kernels: Iterable[KernelStat], assumed: StepArithmetic, static: StaticCount
) -> str | None:
    """Return the arithmetic of `node`'s contractions in `phase`, by its kernels or else as `assumed`; None without any."""
    if not node.cost(phase).macs:
        return None
    return main_kernel_math(kernels) or assumed.of(uses_cudnn(node, static))


def is_cudnn_op(name: str) -> bool:
    """Return whether an op or class of this name is a convolution or a recurrent layer, which cuDNN computes."""
    return any(word in name.lower() for word in _CUDNN_OPS)

"""In which arithmetic a layer's contractions were computed, or would be: that decides which peak they are held against.

What a run's kernels say comes first. Else it follows from dtype, autocast and torch's switches: float32 convolutions and
recurrent layers use TF32 unless ``cudnn.allow_tf32`` is off, float32 matrix products only where
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
from profiler_kit.records.runs import ConfigRun, KernelStat
from profiler_kit.records.target import TargetInfo

_BY_DTYPE: Final = {"float32": "fp32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
_CUDNN_OPS: Final = ("conv", "rnn", "lstm", "gru")  # what cudnn.allow_tf32 governs, in names of ops and of classes
_CONTRACTIONS: Final = ("conv", "gemm", "attention", "rnn")  # kernel families that multiply


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The step's arithmetic: of float32 convolutions (and recurrent layers) and of every other contraction, and why."""

    convolution: str
    product: str
    reason: str

    def of(self, is_convolution: bool) -> str:
        """The arithmetic of one kind of contraction."""
        return self.convolution if is_convolution else self.product


def arithmetic(target: TargetInfo, roof: Roof, run: ConfigRun | None) -> Arithmetic:
    """What the contractions of `target` are computed in under `run`'s flags (None: torch's defaults) on `roof`'s device."""
    if target.amp is not None:
        math = _BY_DTYPE.get(target.amp, target.amp)
        return Arithmetic(convolution=math, product=math, reason=f"{math}, under autocast to {target.amp}")
    dtype = target.dtype or next((i.dtype for i in target.inputs if i.dtype in _BY_DTYPE), "float32")
    math = _BY_DTYPE.get(dtype, dtype)
    if math != "fp32" or roof.peak("tf32") is None:
        return Arithmetic(convolution=math, product=math, reason=f"{math}, as the tensors are {dtype}")
    convolution = "fp32" if run is not None and run.config.allow_tf32 is False else "tf32"
    flags = run.environment.flags if run is not None and run.environment is not None else ()
    product = "tf32" if any(f.name == "cuda.matmul.allow_tf32" and f.value == "True" for f in flags) else "fp32"
    why = "by torch's defaults" if run is None else f"by the flags of {run.config.name}"
    return Arithmetic(
        convolution=convolution,
        product=product,
        reason=f"{convolution} for convolutions and recurrent layers, {product} for other products, {why}",
    )


def is_convolution(node: ModuleNode, static: StaticCount) -> bool:
    """Whether the contractions of `node`'s own code are cuDNN's kind; by its class where the model has both kinds."""
    kinds = {is_cudnn(total.op) for total in static.ops if total.cost is not None and total.cost.macs}
    if len(kinds) == 1:
        return kinds.pop()
    return is_cudnn(node.class_name)


def kernel_math(kernels: Iterable[KernelStat]) -> str | None:
    """The arithmetic that most time of the contractions among `kernels` is in; None where no name says."""
    times: Counter[str] = Counter()
    for kernel in kernels:
        if kernel.math is not None and kernel.family.startswith(_CONTRACTIONS) and kernel.family != LAYOUT:
            times[kernel.math] += kernel.kernel_ns
    return min(times, key=lambda math: (-times[math], math)) if times else None


def layer_math(
    node: ModuleNode, phase: CountPhase, kernels: Iterable[KernelStat], assumed: Arithmetic, static: StaticCount
) -> str | None:
    """The arithmetic of `node`'s contractions in `phase`, as its kernels say, else as `assumed`; None without any."""
    if not node.cost(phase).macs:
        return None
    return kernel_math(kernels) or assumed.of(is_convolution(node, static))


def is_cudnn(name: str) -> bool:
    """Whether an op or a class of this name is of cuDNN's kind: convolutions and recurrent layers."""
    return any(word in name.lower() for word in _CUDNN_OPS)

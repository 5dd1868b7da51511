"""Host time of eager PyTorch per op. Autograd, modules and the optimizer's Python are part of it.

Fitted to steps that their host limits, timed with no other work on that host: `python -m scripts.lab.price_table` prints the
values and their error. Kinds of ops occur together, so that a sum is more certain than its parts.
"""

from __future__ import annotations

from typing import Final

from profiler_kit.forecast.work import Work

# Of an op that launches kernels, by its kind: descriptors, the choice of an algorithm, and lists of tensors take time.
KIND_NS: Final = {
    "attention": 48_000,
    "convolution": 40_000,
    "convolution_backward": 19_000,
    "memory": 27_000,
    "normalization": 53_000,
    "normalization_backward": 152_000,
    "optimizer": 156_000,
    "product": 11_000,
    "recurrent": 60_000,
}
FURTHER_KERNEL_NS: Final = 9_500  # of each kernel of an op after its first
VIEW_NS: Final = 10_600  # of an op without a kernel


def host_kind(work: Work) -> str:
    """The kind of an op that launches kernels: a key of `KIND_NS`."""
    if work.family == "memory" and "_norm" in work.op:
        return "normalization_backward" if work.op.endswith("_backward") else "normalization"
    return work.family


def host_ns(work: Work | None, kernels: float) -> float:
    """The host's time for a call that launches this many kernels. None: a view."""
    if work is None or kernels == 0:
        return VIEW_NS
    return KIND_NS[host_kind(work)] + FURTHER_KERNEL_NS * max(kernels - 1, 0)

"""Host time of eager PyTorch per op. Autograd, modules and the optimizer's Python are part of it.

Fitted to the recorded networks that their host limits, on the hosts of the recordings: `python -m scripts.lab.price_table` prints
the values and their error.
"""

from __future__ import annotations

from typing import Final

from profiler_kit.forecast.work import Work

# Of an op that launches kernels, by its kind: descriptors, the choice of an algorithm, and lists of tensors take time.
KIND_NS: Final = {
    "attention": 43_000,
    "convolution": 84_000,
    "convolution_backward": 137_000,
    "memory": 21_000,
    "normalization": 45_000,
    "normalization_backward": 117_000,
    "optimizer": 121_000,
    "product": 68_000,
    "recurrent": 60_000,
}
FURTHER_KERNEL_NS: Final = 16_400  # of each kernel of an op after its first
VIEW_NS: Final = 9_100  # of an op without a kernel


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

"""The tracer of CUDA calls in a process that goes on after a trace."""

from __future__ import annotations

import os
from typing import Final

import torch
from torch.torch_version import TorchVersion

from profiler_kit.recording.modules import live

TEARDOWN: Final = "TEARDOWN_CUPTI"  # read by the profiler of torch at the end of a trace
SAFE_CUDA: Final = (
    "12.6"  # before it, a second trace after a teardown could crash programs with CUDA graphs: torch.profiler
)


def detach_tracer_afterwards() -> None:
    """Have the profiler of torch detach its tracer from CUDA at the end of the next trace, unless the environment decides it.

    Attached, the tracer makes each launch of the program slower for the rest of its life. It stays where the program has CUDA
    graphs.
    """
    if TorchVersion(torch.version.cuda or "0") >= SAFE_CUDA and not live(torch.cuda.CUDAGraph):
        os.environ.setdefault(TEARDOWN, "1")

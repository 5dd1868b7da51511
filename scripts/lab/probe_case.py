"""A case of the grid: the builder of its tensors and of the measured function, and its parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scripts.lab.probe_device import DTYPES

Work = Callable[[], object]
Built = tuple[Work, list[Tensor]]
BUILDERS: dict[str, Callable[..., Built]] = {}


def builder(function: Callable[..., Built]) -> Callable[..., Built]:
    """Register a builder under its own name."""
    BUILDERS[function.__name__] = function
    return function


@dataclass(frozen=True, slots=True)
class Case:
    """A builder's name and its parameters.

    The dtype is one of: `tf32`, PyTorch's default (fp32, TF32 only in cuDNN); `fp32`, without TF32; `mmtf32`, with TF32 in
    cuBLAS too; `amp`, fp32 under bf16 autocast; or a torch dtype.
    """

    name: str
    parameters: dict[str, Any]
    deterministic: bool = False


def leaf(device: torch.device, shape: Sequence[int], dtype: str, *, grad: bool = True) -> Tensor:
    """A random tensor, by default one that requires a gradient."""
    tensor = torch.randn(tuple(shape), device=device, dtype=DTYPES.get(dtype, torch.float32))
    return tensor.requires_grad_(grad)


def autocast_for(dtype: str) -> contextlib.AbstractContextManager[Any]:
    """Autocast for `amp`, a null context for other dtypes."""
    return torch.autocast("cuda", torch.bfloat16) if dtype == "amp" else contextlib.nullcontext()


def with_autocast(dtype: str, work: Work) -> Work:
    """`work` under the autocast of `dtype`."""

    def run() -> object:
        with autocast_for(dtype):
            return work()

    return run


def to_device(module: nn.Module, device: torch.device, dtype: str, *, train: bool = True) -> nn.Module:
    """Move the module to the device and dtype, in training or evaluation mode."""
    return module.to(device, DTYPES.get(dtype, torch.float32)).train(train)


def trainable_parameters(module: nn.Module) -> list[Tensor]:
    """The parameters that require gradients."""
    return [p for p in module.parameters() if p.requires_grad]

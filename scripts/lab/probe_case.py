"""A case of the grid: a builder of tensors and of the work to measure, and its parameters."""

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
    """Enter a builder under its own name."""
    BUILDERS[function.__name__] = function
    return function


@dataclass(frozen=True, slots=True)
class Case:
    """A builder's name and its parameters.

    Its dtype: `tf32` is PyTorch's default (fp32, TF32 in cuDNN alone), `fp32` is without TF32, `mmtf32` with TF32 in
    cuBLAS too, `amp` is fp32 under bf16 autocast.
    """

    name: str
    parameters: dict[str, Any]
    deterministic: bool = False


def leaf(device: torch.device, shape: Sequence[int], dtype: str, *, grad: bool = True) -> Tensor:
    """A random tensor, by default one to differentiate for."""
    made = torch.randn(tuple(shape), device=device, dtype=DTYPES.get(dtype, torch.float32))
    return made.requires_grad_(grad)


def casting(dtype: str) -> contextlib.AbstractContextManager[Any]:
    """Autocast for `amp`, nothing for the others."""
    return torch.autocast("cuda", torch.bfloat16) if dtype == "amp" else contextlib.nullcontext()


def under(dtype: str, work: Work) -> Work:
    """`work`, under autocast if the dtype says so."""

    def run() -> object:
        with casting(dtype):
            return work()

    return run


def placed(module: nn.Module, device: torch.device, dtype: str, *, train: bool = True) -> nn.Module:
    """The module on the device, in the dtype, in training or evaluation mode."""
    return module.to(device, DTYPES.get(dtype, torch.float32)).train(train)


def trained(module: nn.Module) -> list[Tensor]:
    """The parameters that get gradients."""
    return [p for p in module.parameters() if p.requires_grad]

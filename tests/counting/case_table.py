"""What a hand-derived case is: a function to run, on a device, and what it costs, written from its shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)
BOTH = ("meta", "cpu")


@dataclass(frozen=True)
class On:
    """Makes operands on a device: `x` without a gradient, `w` with one, `n` integers, `m` modules."""

    device: str

    def x(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        if self.device == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(shape).to(dtype)
        return torch.ones(shape, dtype=dtype)

    def w(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.x(*shape, dtype=dtype).requires_grad_()

    def n(self, *shape: int, below: int = 2) -> Tensor:
        values = torch.arange(int(torch.tensor(shape).prod())).reshape(shape) % below
        return values.to(self.device)

    def m(self, module: M) -> M:
        return module.to(self.device)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case. `build` returns a function and its arguments.

    `macs`, `flops`: of forward; without `flops` it is twice the MACs, and with ``flops=None`` it is not looked at. `backward`:
    MACs of the gradients, None where there are none to take; `backward_flops` likewise.
    """

    name: str
    build: Callable[[On], tuple[Any, ...]]
    macs: int
    flops: int | None
    backward: int | None
    backward_flops: int | None
    devices: tuple[str, ...]


_TWICE = -1


def case(
    name: str,
    build: Callable[[On], tuple[Any, ...]],
    macs: int = 0,
    backward: int | None = None,
    *,
    flops: int | None = _TWICE,
    backward_flops: int | None = None,
    devices: tuple[str, ...] = BOTH,
) -> Case:
    """A `Case`; see there."""
    return Case(
        name=name,
        build=build,
        macs=macs,
        flops=2 * macs if flops == _TWICE else flops,
        backward=backward,
        backward_flops=backward_flops,
        devices=devices,
    )

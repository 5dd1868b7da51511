"""One convolution of the grid: its sizes, and whether it is valid and fast enough to measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from scripts.lab.probe_device import SLOW_S

MAX_MACS: Final = 60e9
MAX_ELEMENTS: Final = 100e6


@dataclass(frozen=True, slots=True)
class Conv:
    """The arguments of aten.convolution, the input's size, and the libraries' settings."""

    n: int
    cin: int
    cout: int
    size: tuple[int, ...]
    k: tuple[int, ...]
    s: tuple[int, ...]
    p: tuple[int, ...]
    d: tuple[int, ...]
    op: tuple[int, ...]
    t: bool = False
    g: int = 1
    dtype: str = "tf32"
    cl: bool = False
    det: bool = False

    def out_size(self) -> tuple[int, ...]:
        """The output's spatial size."""
        rows = zip(self.size, self.k, self.s, self.p, self.d, self.op, strict=True)
        if self.t:
            return tuple((i - 1) * s - 2 * p + d * (k - 1) + op + 1 for i, k, s, p, d, op in rows)
        return tuple((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d, _ in rows)

    def macs(self) -> float:
        """Multiply-accumulates of the forward pass."""
        steps = (
            math.prod(self.size) * self.cin * self.cout if self.t else math.prod(self.out_size()) * self.cin * self.cout
        )
        return self.n * steps / self.g * math.prod(self.k)

    def expected_s(self) -> float:
        """A high estimate of the time of the slowest call on an H100, in seconds."""
        is_3d, is_depthwise = len(self.k) == 3, self.g > 1 and self.g == self.cin
        if is_depthwise:  # one thread computes a whole window, or all positions of the weights
            rate = 2e10 if is_3d else 1e11
        elif self.g > 1:
            rate = 5e10 if is_3d else 3e11
        elif is_3d:  # cuDNN may only offer engines without tensor cores
            rate = 1e12 if max(self.k) <= 5 else 2e11
        else:
            rate = 2e12
        return self.macs() / rate

    def fits(self) -> bool:
        """Whether the case is valid and small enough to measure quickly."""
        out = self.out_size()
        if min(out) < 1 or self.cin % self.g or self.cout % self.g:
            return False
        elements = self.n * max(self.cin * math.prod(self.size), self.cout * math.prod(out))
        # ATen's own depthwise kernels are slow for their work.
        max_macs = MAX_MACS / 30 if self.g > 1 and self.g == self.cin else MAX_MACS
        return (
            elements <= MAX_ELEMENTS
            and self.macs() <= max_macs
            and self.expected_s() <= SLOW_S
            and not (self.cl and len(self.size) == 1)
        )


def conv(
    n: int,
    cin: int,
    cout: int,
    size: int | Sequence[int],
    k: int | Sequence[int],
    s: int | Sequence[int] = 1,
    p: int | Sequence[int] | None = None,
    d: int | Sequence[int] = 1,
    *,
    dims: int = 2,
    op: int = 0,
    **options: Any,
) -> Conv:
    """A `Conv`; an int applies to all dimensions. Padding None keeps the size at stride 1."""

    def spread(value: int | Sequence[int]) -> tuple[int, ...]:
        return (value,) * dims if isinstance(value, int) else tuple(value)

    kernel, dilation = spread(k), spread(d)
    padding = tuple(a * (b - 1) // 2 for a, b in zip(dilation, kernel, strict=True)) if p is None else spread(p)
    return Conv(n, cin, cout, spread(size), kernel, spread(s), padding, dilation, spread(op), **options)


def in_dtypes(cases: Sequence[Conv], *dtypes: str) -> list[Conv]:
    """The cases in each dtype; the suffix `cl` of a dtype means channels_last inputs."""
    return [replace(c, dtype=d.removesuffix("cl"), cl=d.endswith("cl")) for c in cases for d in dtypes]

"""Records of a device: figures of its architecture, its own figures, and its datasheet peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

AttentionKernel = Literal["cudnn", "flash", "efficient", "math"]

MIN_TF32_CAPABILITY: Final = 80  # the first compute capability whose tensor cores support TF32 and bfloat16


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and its source."""

    value: int
    source: str


@dataclass(frozen=True, slots=True)
class AttentionOrder:
    """Fused attention kernels in the order in which torch tries them, and the source of the order."""

    kernels: tuple[AttentionKernel, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Figures that all cards of one compute capability share, for the simulation of memory.

    `capability`: major times ten plus minor; 0 for the CPU.
    `threads`: threads resident on one multiprocessor.
    `blas_workspace`: bytes that a cuBLAS handle allocates at its first use and keeps, one handle per thread.
    `blaslt_workspace`: the same for cuBLASLt.
    `dropout_state`: bytes of random state per multiprocessor that cuDNN's recurrent dropout keeps.
    `context`: bytes of driver, context and loaded libraries outside of the allocator.
    """

    name: str
    capability: int
    attention: AttentionOrder
    threads: Figure
    blas_workspace: Figure
    blaslt_workspace: Figure
    dropout_state: Figure
    context: Figure

    @property
    def has_tf32(self) -> bool:
        """Whether tensor cores support TF32 and bfloat16."""
        return self.capability >= MIN_TF32_CAPABILITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Datasheet peaks of a device: dense (no structured sparsity), at the vendor's boost clock.

    Units: FLOP/s and bytes/s. `fp32` is without tensor cores. The others are tensor-core peaks with fp32 accumulation; None
    means unsupported.
    """

    fp32: float
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    bandwidth: float
    source: str

    def for_math(self, math: str | None) -> float | None:
        """The peak for an arithmetic as kernel names spell it (``fp32``, ``tf32``, ``f16``, ``bf16``); None if unknown."""
        return self.rates().get(math) if math is not None else None

    def rates(self) -> dict[str, float | None]:
        """The peaks by arithmetic, as kernel names spell it."""
        return {"fp32": self.fp32, "tf32": self.tf32, "f16": self.fp16, "bf16": self.bf16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU or the CPU: its names and figures.

    `label`: the name in reports.
    `short_names`: names that users may type; lists of choices show the first one. The representative card of an architecture also
    has the architecture's name.
    `names`: torch's exact names. A slice of a device (MIG) or a variant with other clocks has a longer name, and these peaks
    would be wrong for it.
    `prices`: the file in `devices/prices/` with kernel times of ops that were recorded on this card.
    `price_factors`: of a card without it: for each family of ops, its measured kernel time divided by the one that the prices of
    the nearest card give at this card's peaks. `factors_source`: where they were measured.
    """

    label: str
    short_names: tuple[str, ...] = ()
    torch_names: tuple[str, ...] = ()
    architecture: Architecture
    multiprocessors: Figure
    peaks: Peaks | None = None
    prices: str | None = None
    price_factors: tuple[tuple[str, float], ...] = ()
    factors_source: str = ""

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.architecture.capability > 0

    @property
    def dropout_state(self) -> Figure:
        """Bytes of random state that cuDNN's recurrent dropout keeps on this device."""
        per_multiprocessor = self.architecture.dropout_state
        return Figure(per_multiprocessor.value * self.multiprocessors.value, per_multiprocessor.source)

"""The records of a device: its architecture's figures, its own, and its datasheet's peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

AttentionKernel = Literal["cudnn", "flash", "efficient", "math"]

FIRST_WITH_TF32: Final = 80  # compute capability from which tensor cores compute in TF32 and bfloat16


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and where it is from."""

    value: int
    source: str


@dataclass(frozen=True, slots=True)
class AttentionOrder:
    """Fused attention kernels in the order in which torch tries them, and where that is from."""

    kernels: tuple[AttentionKernel, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What all cards of one compute capability share, as the simulation of memory needs it.

    `capability`: major times ten plus minor; 0 for the CPU. `threads`: resident on one multiprocessor. `blas_workspace`: bytes
    that each cuBLAS handle takes at its first use and keeps, one handle per thread; `blaslt_workspace` likewise for cuBLASLt.
    `dropout_state`: bytes of random state per multiprocessor that cuDNN's recurrent dropout keeps. `context`: what driver,
    context and loaded libraries take outside the allocator.
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
        """Whether tensor cores compute in TF32 and bfloat16."""
        return self.capability >= FIRST_WITH_TF32


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What a datasheet says a device reaches at most, dense (no structured sparsity), at the vendor's boost clock.

    Units: FLOP/s and bytes/s. `fp32` is without tensor cores; the others are tensor-core peaks with fp32 accumulation, None
    where there are none.
    """

    fp32: float
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    bandwidth: float
    source: str

    def for_math(self, math: str | None) -> float | None:
        """The peak for a kernel's arithmetic as kernel names give it (``fp32``, ``tf32``, ``f16``, ``bf16``)."""
        return self.rates().get(math) if math is not None else None

    def rates(self) -> dict[str, float | None]:
        """The peaks by arithmetic, as kernel names give it."""
        return {"fp32": self.fp32, "tf32": self.tf32, "f16": self.fp16, "bf16": self.bf16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card, or the CPU: how it is called, and what is known about it.

    `label` is what reports call it. `short` is what a person may type, the first being how lists of choices name it; a card
    that stands for its architecture has the architecture's name among them. `names` are torch's, exactly: a slice of a device
    (MIG) or a variant with other clocks carries a longer name, and another device's peaks would be wrong for it.
    """

    label: str
    short: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    architecture: Architecture
    multiprocessors: Figure
    peaks: Peaks | None = None

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.architecture.capability > 0

    @property
    def dropout_state(self) -> Figure:
        """Bytes of random state that cuDNN's recurrent dropout keeps on this device."""
        each = self.architecture.dropout_state
        return Figure(each.value * self.multiprocessors.value, each.source)

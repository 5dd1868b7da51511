"""The roofline: the least time that counted work can take on a device, and how much of it a run reached.

A floor is what the slower of two resources needs alone: arithmetic at its peak, or operand bytes at the bandwidth. Bytes
are a lower bound on traffic (each operand once), so a floor is one too: real work takes longer, seldom shorter. Two things
can be faster than their floor: an algorithm that does fewer operations than are counted (FFT, Winograd), and operands that
a cache still holds from the op before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from profiler_kit.records.counts import CountPhase
from profiler_kit.records.sums import added

RoofSource = Literal["datasheet", "measured"]
Resource = Literal["compute", "memory"]
BoundPhase = Literal["forward", "loss", "backward", "recompute", "step"]  # of counting, or all of them
STEP: Final = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """FLOP/s in one arithmetic (``fp32``, ``tf32``, ``f16``, ``bf16``); work below `ridge_flops_per_byte` is memory-bound."""

    math: str
    flops_per_s: float
    ridge_flops_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What a device reaches at most, by its datasheet or as measured; `citation` says which sheet, or how measured."""

    hardware: str
    source: RoofSource
    citation: str
    peaks: tuple[Peak, ...]
    bandwidth_bytes_per_s: float

    def peak(self, math: str) -> float | None:
        """FLOP/s in `math`; None where the device has none, or nobody knows it."""
        return next((peak.flops_per_s for peak in self.peaks if peak.math == math), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Floors that add: ns where arithmetic binds, ns where bytes do; layers run one after another, so theirs sum up.

    `timed_ns` is the part of the floor for which a run has device time, `time_ns` that time.
    """

    compute_ns: float = 0.0
    memory_ns: float = 0.0
    timed_ns: float = 0.0
    time_ns: int = 0

    def __add__(self, other: Floor) -> Floor:
        return added((self, other), "compute_ns", "memory_ns", "timed_ns", "time_ns")

    @property
    def floor_ns(self) -> float:
        """The least time."""
        return self.compute_ns + self.memory_ns

    @property
    def binds(self) -> Resource:
        """The resource that most of the floor is for."""
        return "compute" if self.compute_ns >= self.memory_ns else "memory"

    @property
    def attained_percent(self) -> float | None:
        """The floor's share of the device time: 100 is as fast as the roof allows. None without a time."""
        return 100.0 * self.timed_ns / self.time_ns if self.time_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBound:
    """One owner's own work in one phase: its floor, which resource binds, its contractions' arithmetic, its device time.

    `math` is None where it has no contractions. `time_ns` is what the run took for it, None without a run.
    """

    path: str
    phase: CountPhase
    floor_ns: float
    binds: Resource
    math: str | None
    time_ns: int | None = None

    @property
    def floor(self) -> Floor:
        """The same, as it adds."""
        timed_ns = self.floor_ns if self.time_ns is not None else 0.0
        return replace(_floor(self.floor_ns, self.binds), timed_ns=timed_ns, time_ns=self.time_ns or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpBound:
    """All calls of one op in one phase: their floor together, which resource binds, the arithmetic of its contractions."""

    op: str
    phase: CountPhase
    floor_ns: float
    binds: Resource
    math: str | None

    @property
    def floor(self) -> Floor:
        """The same, as it adds."""
        return _floor(self.floor_ns, self.binds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBound:
    """All work of one phase, or of the ``step``: what arithmetic and bytes need alone, and the layers' floors in sum.

    `floor_ns` is the larger of `compute_ns` and `memory_ns`, as if everything overlapped; `layers_ns` is never less, and
    the better bound where layers run one after another. `time_ns`: device time of the layers that a run timed;
    `attained_percent`: their floors' share of it.
    """

    phase: BoundPhase
    compute_ns: float
    memory_ns: float
    floor_ns: float
    binds: Resource
    layers_ns: float
    time_ns: int | None = None
    attained_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A step under a roof: floors of every layer and phase with counted work. `config` names the run with the times, if any.

    `arithmetic` says which peak contractions were held against, and why. `ops`: the same work by op instead of by owner.
    """

    roof: Roof
    config: str | None
    arithmetic: str
    phases: tuple[PhaseBound, ...]
    layers: tuple[LayerBound, ...]
    notes: tuple[str, ...] = ()
    ops: tuple[OpBound, ...] = ()

    @property
    def step(self) -> PhaseBound | None:
        """The bound of the whole step; None where nothing was counted."""
        return next((phase for phase in self.phases if phase.phase == STEP), None)


def _floor(floor_ns: float, binds: Resource) -> Floor:
    return Floor(compute_ns=floor_ns) if binds == "compute" else Floor(memory_ns=floor_ns)

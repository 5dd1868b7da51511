"""The roofline: the least time that counted work can take on a device, and the share of it that a run reached.

A floor is the time that the slower of two resources needs: arithmetic at its peak, or operand bytes at the bandwidth.
Operand bytes are a lower bound on traffic (each operand once), so a floor is a lower bound on time. Work can be faster than
its floor in two cases: the algorithm executes fewer operations than are counted (FFT, Winograd), or a cache still holds
operands from the previous op.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from profiler_kit.records.counts import CountPhase
from profiler_kit.records.sums import sum_fields

RoofSource = Literal["datasheet", "measured"]
Resource = Literal["compute", "memory"]
BoundPhase = Literal["forward", "loss", "backward", "recompute", "step"]  # a counted phase, or their sum
STEP: Final = "step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """FLOP/s in one arithmetic (``fp32``, ``tf32``, ``f16``, ``bf16``); work below `ridge_flops_per_byte` is memory-bound."""

    math: str
    flops_per_s: float
    ridge_flops_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The peaks of a device, from its datasheet or measured. `citation` names the datasheet or the measurement."""

    hardware: str
    source: RoofSource
    citation: str
    peaks: tuple[Peak, ...]
    bandwidth_bytes_per_s: float

    def peak(self, math: str) -> float | None:
        """FLOP/s in `math`; None where the device lacks it or its peak is unknown."""
        return next((peak.flops_per_s for peak in self.peaks if peak.math == math), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Floors that add up. Layers run one after another, so their floors sum.

    - `compute_ns`: floors of compute-bound work. `memory_ns`: floors of memory-bound work.
    - `timed_ns`: the part of the floor with device time from a run. `time_ns`: that device time.
    """

    compute_ns: float = 0.0
    memory_ns: float = 0.0
    timed_ns: float = 0.0
    time_ns: int = 0

    def __add__(self, other: Floor) -> Floor:
        return sum_fields((self, other), "compute_ns", "memory_ns", "timed_ns", "time_ns")

    @property
    def floor_ns(self) -> float:
        """The least time."""
        return self.compute_ns + self.memory_ns

    @property
    def binds(self) -> Resource:
        """The resource with the larger part of the floor."""
        return "compute" if self.compute_ns >= self.memory_ns else "memory"

    @property
    def attained_percent(self) -> float | None:
        """The floor in percent of the device time; 100 is as fast as the roofline allows. None without a time."""
        return 100.0 * self.timed_ns / self.time_ns if self.time_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBound:
    """The floor of one path in one phase, excluding children.

    - `binds`: the resource that limits it.
    - `math`: the arithmetic of its contractions; None without contractions.
    - `time_ns`: its device time in the run; None without a run.
    """

    path: str
    phase: CountPhase
    floor_ns: float
    binds: Resource
    math: str | None
    time_ns: int | None = None

    @property
    def floor(self) -> Floor:
        """The floor as a summand."""
        timed_ns = self.floor_ns if self.time_ns is not None else 0.0
        return replace(_floor(self.floor_ns, self.binds), timed_ns=timed_ns, time_ns=self.time_ns or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpBound:
    """The floor of all calls of one op in one phase.

    - `binds`: the resource that limits it.
    - `math`: the arithmetic of its contractions; None without contractions.
    """

    op: str
    phase: CountPhase
    floor_ns: float
    binds: Resource
    math: str | None

    @property
    def floor(self) -> Floor:
        """The floor as a summand."""
        return _floor(self.floor_ns, self.binds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBound:
    """The floor of one phase, or of the ``step``.

    - `compute_ns`: time of all FLOPs at the peak. `memory_ns`: time of all operand bytes at the bandwidth.
    - `floor_ns`: the larger of the two, as if all work overlapped.
    - `layers_ns`: the sum of the layers' floors. It is never less than `floor_ns`, and the better bound where layers run one
      after another.
    - `time_ns`: device time of the layers that the run timed. `attained_percent`: their floors in percent of it.
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
    """Floors of all counted work under one roof.

    - `config`: the run with the times; None without a run.
    - `arithmetic`: the peak that contractions are compared with, and why.
    - `layers`: the floors by path and phase. `ops`: the same work by op.
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
        """The bound of the step; None where nothing was counted."""
        return next((phase for phase in self.phases if phase.phase == STEP), None)


def _floor(floor_ns: float, binds: Resource) -> Floor:
    return Floor(compute_ns=floor_ns) if binds == "compute" else Floor(memory_ns=floor_ns)

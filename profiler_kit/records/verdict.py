"""Records of the verdict on a report: sentences, bound, main cause and remedies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.samples import Outcome

Bound = Literal[
    "compute", "memory bandwidth", "copies", "kernels", "operators", "overhead", "launches", "python", "synchronization", "data",
    "communication", "other devices", "cold start", "compilation", "memory allocation", "unknown",
]  # fmt: skip
RemedyStatus = Literal["tried", "measured", "estimated", "not tried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRemedy:
    """One thing to do, from one or several findings.

    - `action`: what to do. `code`: the line to paste; empty where the action is not a line of code.
    - `findings`: the numbers of the findings that advise it; the first finding of a report has number 1.
    - `config`: the configuration that applies it; None where no configuration does.
    - `status`: ``tried`` in interleaved fresh processes, ``measured`` by the sweep, ``estimated`` from counts or from the share
      of the step that it affects, ``not tried`` without an estimate.
    - `outcome`: of a measurement; None without one.
    - `gain_percent`: the share of the step time (of peak memory, or of counted FLOPs, as `about` says) that it saves, with the
      95 % interval of a measured gain. An estimate is an upper limit. `per_example`: the gain is per example.
    - `paths`: the modules that it changes.
    - `memory`, `numerics`: its effect on peak memory and on results; empty where unknown.
    """

    action: str
    code: str
    findings: tuple[int, ...]
    status: RemedyStatus
    outcome: Literal[Outcome, "failed"] | None = None
    paths: tuple[str, ...] = ()
    about: Literal["step", "peak", "work"] = "step"
    config: str | None = None
    gain_percent: float | None = None
    gain_low_percent: float | None = None
    gain_high_percent: float | None = None
    per_example: bool = False
    memory: str = ""
    numerics: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether its gain was measured, by the sweep or in a trial."""
        return self.status in ("tried", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAfter:
    """The estimated time of a step once the finding of this number, and those listed before it, are repaired."""

    finding: int
    step_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer of a report in a few sentences, and what to do.

    - `sentences`: the cost of a step, its bound, the main cause, the best remedy, and the unexplained time. At most five.
    - `bound`: what limits the step; None without times.
    - `busy`, `idle`: shares of the step; None without times. `unexplained_busy`, `unexplained_idle`: the parts of them that no
      finding explains.
    - `cause`: the number of the finding that explains most; None where none explains any time. `cause_is_bound`: it is about
      the part of the step that is its bound, not about a smaller part; None without a bound and a cause.
    - `remedies`: what to do: measured gains first, then estimates, largest first. `without_gain`: advice that was tried and did
      not help.
    - `step_ns`: the time of a step that the shares are parts of; None without steps.
    - `sequence`: the step after one repair after the other, by the replay of its trace. `device_work_ns`: the work of the device
      in a step, which no change of the host makes shorter; None where it is unknown, or shown by `sequence` already.
    """

    sentences: tuple[str, ...]
    bound: Bound | None = None
    busy: float | None = None
    idle: float | None = None
    unexplained_busy: float | None = None
    unexplained_idle: float | None = None
    cause: int | None = None
    cause_is_bound: bool | None = None
    remedies: tuple[RankedRemedy, ...] = ()
    without_gain: tuple[RankedRemedy, ...] = ()
    step_ns: int | None = None
    sequence: tuple[StepAfter, ...] = ()
    device_work_ns: int | None = None

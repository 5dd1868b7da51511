"""The record of `tune`: the chosen configuration, its re-measured gain, and what became of every change that was tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.report import Tool
from profiler_kit.records.samples import Difference, Interval
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.views import Views
from profiler_kit.units import text

Goal = Literal["time", "memory", "throughput"]
GOALS: Final[tuple[Goal, ...]] = get_args(Goal)
ANY_ERROR: Final = "any"
# bfloat16 has three bits less than TF32, which is a factor of 8 where TF32 is in use; elsewhere, its error is usually below 0.01.
DEFAULT_TOLERANCE: Final = "10x,0.01"
# In place of the default where a change reduces the precision: bfloat16 rounds by 0.002, and errors add up over the layers.
REDUCED_TOLERANCE: Final = "10x,0.1"

# What became of a change. better: surely better, but another change was accepted in its place.
AttemptOutcome = Literal[
    "accepted", "better", "same", "worse", "too slow", "inaccurate", "failed", "not applicable", "not tried"
]
TuningOutcome = Literal["better", "nothing better", "not confirmed", "interrupted"]
Place = Literal["start", "model", "optimizer", "data", "loop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOptions:
    """The options of `tune`.

    - `goal`: ``time`` of a step at the given batch, ``throughput`` (time per example, any batch), or ``memory`` (peak at the
      given batch).
    - `processes`: the largest number of processes; None without a limit. `budget_s`: the wall time of the search in seconds;
      the final measurement may take longer.
    - `tolerance`: the error against float64 that is accepted. A number is added to the error of the baseline, ``10x`` multiplies
      it, and ``any`` accepts all. Of several, separated by commas, the one with the largest limit counts.
    - `max_slowdown`: with the goal ``memory``, the share of the step time that a change may cost.
    - `changes`: the changes to try, by name; empty for those that apply to the device.
    """

    goal: Goal = "time"
    processes: int | None = None
    budget_s: float = 120.0
    tolerance: str = DEFAULT_TOLERANCE
    max_slowdown: float = 0.1
    changes: tuple[str, ...] = ()

    def error_limit(self, baseline_error: float | None, *, reduced: bool = False) -> float | None:
        """The largest accepted error where the baseline has `baseline_error`; None where none can be accepted.

        Infinity accepts any error, also an unknown one. `reduced`: of the answer with reduced precision.
        """
        tolerance = REDUCED_TOLERANCE if reduced and self.tolerance == DEFAULT_TOLERANCE else self.tolerance
        if self.tolerance == ANY_ERROR:
            return float("inf")
        if baseline_error is None:
            return None
        return max(
            float(part[:-1]) * baseline_error if part.endswith("x") else baseline_error + float(part)
            for part in tolerance.split(",")
        )


def parse_tolerance(written: str) -> str:
    """`written` as a tolerance: ``0.01``, ``10x``, ``10x,0.01`` or ``any``. Raises ValueError for anything else."""
    value = written.strip().lower()
    parts = [part.strip() for part in value.split(",")]
    if value != ANY_ERROR and not all(map(_is_tolerance, parts)):
        raise ValueError(
            f"{written!r} is not a tolerance: write a relative error (0.01), a multiple of the baseline's error (10x), both "
            "(10x,0.01), or any"
        )
    return ",".join(parts)


def _is_tolerance(part: str) -> bool:
    try:
        number = float(part.removesuffix("x"))
    except ValueError:
        return False
    return (1 if part.endswith("x") else 0) <= number < 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSide:
    """One side of the final measurement: the baseline, or the chosen configuration.

    - `step_ns`: the median of all timed steps of its processes, with the interval of the median. `process_ns`: the median step of
      each process. `samples`: examples per step.
    - `peak_bytes`: peak memory allocated in the timed steps (reserved, with CUDA graphs); None on a CPU.
    - `max_relative_error`, `gradient_l2_relative_error`: errors against float64, as in `ConfigRun`; None where not measured.
    - `repeatable`: whether three passes in one process were bitwise equal.
    """

    config: RunConfig
    step_ns: Interval | None = None
    process_ns: tuple[int, ...] = ()
    samples: int | None = None
    peak_bytes: int | None = None
    max_relative_error: float | None = None
    gradient_l2_relative_error: float | None = None
    repeatable: bool | None = None

    @property
    def examples_per_s(self) -> float | None:
        """Examples per second; None where the step or the number of examples is unknown."""
        if self.step_ns is None or not self.step_ns.median or self.samples is None:
            return None
        return self.samples * 1e9 / self.step_ns.median


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A change that was tried on top of the configuration accepted so far.

    - `round`: its place in the search, from 1; 0 for a change that was not run. `change`: its name, such as ``amp_bf16``.
      `base`: the configuration that it was added to. `config`: the configuration that was run.
    - `outcome`: see `AttemptOutcome`. `reason`: why it was not accepted; empty if it was.
    - `gain`: against `base`, in the search; None where it was not measured. `ratio`: the goal's figure of `config` over that of
      the baseline, as the search saw it.
    - `expected`: the share of the step that the change may save, by the replay of the baseline's trace; None without one.
    - `reduced`: the change computes with fewer bits. `peak_bytes`, `max_relative_error`: of `config`.
    """

    round: int
    change: str
    base: str
    config: str
    outcome: AttemptOutcome
    reason: str = ""
    gain: Difference | None = None
    ratio: float | None = None
    expected: float | None = None
    reduced: bool = False
    peak_bytes: int | None = None
    max_relative_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one accepted change contributes.

    - `method`: ``leave-one-out``: the chosen configuration against the same without the change (`without`), in turns of one
      process (files of earlier versions: in fresh processes). ``incremental``: against the configuration before the change.
    - `gain`: with the change against without it.
    - `without_peak_bytes`: the peak without the change; None where unknown.
    """

    change: str
    without: str
    method: Literal["leave-one-out", "incremental"]
    gain: Difference | None = None
    without_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Lines of Python to paste at one place of a training script.

    - `place`: ``start`` (before the model is built), ``model`` (after the model is on its device), ``optimizer`` (after the
      optimizer is created), ``data`` (where the loader is created) or ``loop`` (one step). Blocks are in this order.
    - `changes`: the accepted changes that need it.
    - `code`: the lines. They use `torch`, `model`, `optimizer`, `inputs`, `labels`, `loss_fn` and `dataset`.
    """

    place: Place
    changes: tuple[str, ...]
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionError:
    """The error against float64 of a configuration with another precision: ``no-tf32``, ``matmul_tf32``, ``amp_bf16``."""

    config: str
    max_relative_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningAnswer:
    """An answer: accepted changes, and what they gain. The fields are those of `Tuning`.

    `error_limit`: the largest accepted error.
    """

    outcome: TuningOutcome
    chosen: TuningSide
    gain: Difference | None
    estimate: Difference | None
    changes: tuple[str, ...]
    contributions: tuple[Contribution, ...] = ()
    code: tuple[CodeBlock, ...] = ()
    error_limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(Views, Saved, kind="tuning"):
    """The result of `tune`.

    - `outcome`: ``better``: `chosen` is surely better than `baseline`. ``nothing better``: no change was accepted. ``not
      confirmed``: the fresh processes do not confirm the gain of the search. ``interrupted``: Ctrl-C.
    - `baseline`, `chosen`: both sides; `chosen` is None where no change was accepted.
    - `gain`: `chosen` against `baseline`, re-measured in fresh processes after the search, interleaved; None without them. The
      search was sure, so its 95 % interval decides: `outcome` is ``better`` if it excludes no gain.
    - `estimate`: the same from the search: the product of the gains of the accepted changes, with its interval. Picking the best
      makes it optimistic.
    - `changes`: the accepted changes, in the order of acceptance. `contributions`: what each contributes.
    - `attempts`: every change that was tried, in order, and those that do not apply.
    - `code`: the lines to paste. Empty where `outcome` is not ``better``.
    - `error_limit`: the largest error against float64 that was accepted; None where the baseline's error is unknown, or without
      a limit.
    - `reduced`: the answer with reduced precision; None without one. The other fields are of the answer with the precision of
      the baseline.
    - `errors`: of the other precisions, beside that of the baseline, where an answer reduces it.
    - `reachable`: the share of the baseline's step that the best single change may save, by the replay of its trace.
    - `processes`: the number of processes. `wall_ns`: the time of the search and the final measurement.
    """

    tool: Tool
    created: str
    target: TargetInfo
    options: TuningOptions
    outcome: TuningOutcome
    baseline: TuningSide
    environment: Environment | None = None
    chosen: TuningSide | None = None
    gain: Difference | None = None
    estimate: Difference | None = None
    changes: tuple[str, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    code: tuple[CodeBlock, ...] = ()
    error_limit: float | None = None
    reduced: TuningAnswer | None = None
    errors: tuple[PrecisionError, ...] = ()
    reachable: float | None = None
    processes: int = 0
    wall_ns: int = 0
    notes: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[TuningAnswer, ...]:
        """The answer with the precision of the baseline, if any, and the one with less."""
        reduced = () if self.reduced is None else (self.reduced,)
        if self.chosen is None:
            return reduced
        same = TuningAnswer(
            outcome=self.outcome, chosen=self.chosen, gain=self.gain, estimate=self.estimate, changes=self.changes,
            contributions=self.contributions, code=self.code, error_limit=self.error_limit,
        )  # fmt: skip
        return (same, *reduced)

    def __repr__(self) -> str:
        texts = [
            f"{answer.chosen.config.name}, {text(answer.gain.ratio, 'ratio')} ({answer.outcome})"
            for answer in self.answers
            if answer.gain is not None
        ]
        return f"<Tuning {self.target.name}: {'; '.join(texts) or self.outcome}>"


def figure_words(goal: Goal) -> str:
    """The figure that a goal compares, in words."""
    return {"time": "step time", "throughput": "time per example", "memory": "peak memory"}[goal]


def error_text(error: float | None) -> str:
    """An error against float64 as text; ``unknown`` without one."""
    return text(error, "fraction") if error is not None else "unknown"

"""Two reports side by side: what differs, and what a gate says about it.

Every `ratio` is b over a, None where a is zero or unknown. Lower is better for every metric here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from profiler_kit.records.counts import Phase
from profiler_kit.records.families import brief_math_words, brief_words
from profiler_kit.records.laboratory import ConvolutionPart
from profiler_kit.records.report import Evidence
from profiler_kit.records.samples import Outcome
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import InputInfo, Mode
from profiler_kit.units import Unit

Verdict = Literal[Outcome, "noise", "failed", "not_comparable"]
Clock = Literal["kernel", "operator"]


def clock_words(clock: Clock | None) -> str:
    """What times by owner are called. A CPU has no device beside itself: its operators are timed on the host."""
    return "operator time" if clock == "operator" else "device time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two. `label` is what sentences call it, never the same on both sides; `samples` is the batch:
    the leading dimension of the first input.
    """

    label: str
    name: str
    spec: str
    mode: Mode
    inputs: tuple[InputInfo, ...]
    samples: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric on both sides. `config` is None for what was counted, else the configuration it was measured under.

    `reason` says why a verdict is ``noise``, ``failed`` or ``not_comparable``; the values stand there all the same.
    """

    metric: str
    title: str
    unit: Unit
    config: str | None
    a: int | None
    b: int | None
    ratio: float | None
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRatio:
    """A step-time ratio taken apart: ``time_ratio == work_ratio / efficiency_ratio``.

    Work is the step's FLOPs as counted (in proportion, where a configuration changes the batch); efficiency is what is
    achieved of them per second, in FLOP/s. `per_sample_ratio` is the time ratio per sample, given only where the steps hold
    different numbers of them (`a_samples`, `b_samples`).
    """

    config: str
    a_ns: int
    b_ns: int
    time_ratio: float
    a_flops: int
    b_flops: int
    work_ratio: float
    a_flops_per_s: float
    b_flops_per_s: float
    efficiency_ratio: float
    per_sample_ratio: float | None
    sentence: str
    a_samples: int | None = None
    b_samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmUse:
    """A family of kernels (`records/families.py`) that a layer ran on in one phase, its arithmetic, its time per step.

    `part` where each part of a convolution was measured by itself; then `flops_per_s` and `workspace_bytes` are the part's.
    """

    family: str
    math: str | None
    kernel_ns: int
    part: ConvolutionPart | None = None
    flops_per_s: float | None = None
    workspace_bytes: int | None = None

    @property
    def words(self) -> str:
        """The algorithm and its arithmetic: ``direct convolution in fp32``."""
        return brief_words(self.family) + (f" in {brief_math_words(self.math)}" if self.math is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEfficiency:
    """One owner's device time in one phase on one side, ns per step, beside what its FLOPs take at the reference rate.

    ``beyond_ns == device_ns - at_reference_ns``. Recomputation counts as backward, where it runs. `flops_per_s` is effective:
    counted FLOPs over device time, None without either. `algorithms`: what it ran on, most time first.
    """

    path: str
    phase: Phase
    device_ns: int
    flops: int
    flops_per_s: float | None
    at_reference_ns: int
    beyond_ns: int
    algorithms: tuple[AlgorithmUse, ...] = ()

    @property
    def first_share(self) -> float:
        """The first algorithm's share of the time of all."""
        whole = sum(use.kernel_ns for use in self.algorithms)
        return self.algorithms[0].kernel_ns / whole if whole > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEfficiency:
    """One side's step by layer: device times of `layers` + `rest_ns` = `step_ns`, exactly.

    The layers' `beyond_ns` + `rest_ns` = `beyond_ns`: the step's time less what its FLOPs take at the reference rate. `rest_ns`:
    the step less all attributed device time (no kernel running, unattributed kernels); below zero where kernels overlap, or
    the traced steps were slower than the timed ones.
    """

    step_ns: int
    flops: int
    layers: tuple[LayerEfficiency, ...]
    rest_ns: int
    beyond_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencySplit:
    """The time between two steps taken apart under one configuration, exactly, in ns.

    The slower side's `step_ns` - the faster's = `work_ns` + the slower's `beyond_ns`; the faster's `beyond_ns` is 0. The
    reference rate is the faster side's FLOP/s over its whole step; `work_ns` is what the slower side would take longer at it.
    `sentence` names the layer that matters most and what it runs on; empty where efficiency explains next to nothing.
    """

    config: str
    slower: Literal["a", "b"]
    clock: Clock | None
    reference_flops_per_s: float
    work_ns: int
    a: SideEfficiency
    b: SideEfficiency
    sentence: str = ""

    @property
    def slower_first(self) -> tuple[SideEfficiency, SideEfficiency]:
        """The slower side, then the faster one."""
        return (self.b, self.a) if self.slower == "b" else (self.a, self.b)


ExplanationVerdict = Literal["wrong", "off", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A usual explanation put to the test: what it would predict, what was measured, and the verdict with its numbers.

    ``wrong``: the opposite was measured, or nothing of the kind; ``off``: the direction is right, the figure is not, by the
    factor `off_by` (measured over predicted). `config` is the configuration it was tested under, None for what was counted
    alone; `sentence` says it all in one.
    """

    key: Literal["loss", "parameters", "flops", "activations", "checkpointing"]
    config: str | None
    explanation: str
    predicts: str
    measured: str
    verdict: ExplanationVerdict
    sentence: str
    numbers: tuple[Evidence, ...]
    off_by: float | None = None


MemoryPart = Literal["parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "workspace", "rest"]
MEMORY_PARTS: Final[tuple[MemoryPart, ...]] = get_args(MemoryPart)
PART_TITLES: Final = {part: part.replace("_", " ") for part in MEMORY_PARTS} | {"rest": "the rest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBytes:
    """Bytes of one part of the peak on both sides; None where it is not known (workspace without a device)."""

    part: MemoryPart
    a: int | None
    b: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySplit:
    """The peak of both sides taken apart; on each side the known parts sum to its peak, exactly.

    `config` is None for the predicted peak (tensor lifetimes, no workspace), else the configuration it was measured under.
    """

    config: str | None
    a_peak_bytes: int
    b_peak_bytes: int
    parts: tuple[PartBytes, ...]


LayerKind = Literal["changed", "added", "removed", "same", "renamed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFigures:
    """A layer's own figures: FLOPs and MACs of a step, parameters, bytes saved for backward, device time per step."""

    flops: int = 0
    macs: int = 0
    params: int = 0
    saved_bytes: int = 0
    device_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChange:
    """A layer of a, of b, or of both. `change` says in words what became of it.

    `contribution` is the largest share its change has in a total (of FLOPs, parameters, saved bytes or device time).
    """

    kind: LayerKind
    a_path: str | None
    b_path: str | None
    class_name: str
    change: str
    a: LayerFigures
    b: LayerFigures
    contribution: float

    @property
    def path(self) -> str:
        """Where the layer is now, or was: b's path, else a's."""
        return self.b_path if self.b_path is not None else self.a_path or ""

    @property
    def device_ns_change(self) -> int | None:
        """Device time of b less a's; None where either was not measured."""
        return None if self.a.device_ns is None or self.b.device_ns is None else self.b.device_ns - self.a.device_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Saved, kind="comparison"):
    """Two reports side by side. `config` is the configuration that the layers' device times are from, `clock` theirs.

    The layers' figures sum to the reports' totals on each side, and are sorted by contribution, largest first.
    `sentences` say the result; `notes` say what limits it. `telling` are the configurations that sentences and summaries
    speak of: the baseline, and the one flag that changes the picture most; tables hold them all. `convention` is the name of
    the one by which both sides count work. `efficiencies` and `explanations` are under the telling configurations.
    """

    a: Side
    b: Side
    config: str | None
    metrics: tuple[MetricRow, ...]
    times: tuple[TimeRatio, ...]
    memory: tuple[MemorySplit, ...]
    layers: tuple[LayerChange, ...]
    sentences: tuple[str, ...]
    notes: tuple[str, ...]
    telling: tuple[str, ...] = ()
    clock: Clock | None = None
    convention: str | None = None
    efficiencies: tuple[EfficiencySplit, ...] = ()
    explanations: tuple[Explanation, ...] = ()


BudgetSeverity = Literal["error", "warn", "off"]
BudgetOutcome = Literal["ok", "broken", "warned", "not_comparable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on one metric: exactly one of `increase` (a fraction of the base), `increase_by` and `limit` (its own unit) is set.

    `written` is the limit as its author wrote it, `where` the place it was written at.
    """

    metric: str
    written: str
    where: str
    severity: BudgetSeverity = "error"
    increase: float | None = None
    increase_by: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """What became of one budget. `change` is head over base less one, None where the base is zero or unknown.

    `allowed` is the largest value that keeps the budget.
    """

    metric: str
    title: str
    unit: Unit
    base: int | None
    head: int | None
    change: float | None
    allowed: int | None
    limit: str
    severity: BudgetSeverity
    outcome: BudgetOutcome
    reason: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(Saved, kind="check"):
    """The gate's answer: every budget's outcome, and the comparison that explains it (None where nothing compares).

    `exit_code`: 1 if a budget is broken; else 4 if one that could break can't be judged, or nothing compares; else 0.
    `verdict`: the answer in a few words.
    """

    target: str
    exit_code: int
    verdict: str
    budgets: tuple[BudgetRow, ...]
    notes: tuple[str, ...] = ()
    comparison: Comparison | None

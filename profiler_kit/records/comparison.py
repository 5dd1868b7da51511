"""Records of `compare` for two reports.

Every `ratio` is b divided by a, and None where a is zero or unknown. Lower is better for every metric here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from profiler_kit.records.counts import Phase
from profiler_kit.records.edits import (
    CheckpointChange,
    Consequence,
    Edit,
    FigureChanges,
    LayerGroup,
    MetricReason,
    Role,
)
from profiler_kit.records.experiments import ConvolutionPart
from profiler_kit.records.families import short_family_name, short_math_name
from profiler_kit.records.report import Evidence
from profiler_kit.records.runs import Clock
from profiler_kit.records.samples import Outcome
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import InputInfo, Mode
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.records.views import Views
from profiler_kit.units import Unit, plural, text

Verdict = Literal[Outcome, "noise", "failed", "not_comparable"]


def clock_name(clock: Clock | None) -> str:
    """The name of the times per layer. A CPU has no separate device: its operators are timed on the host."""
    return "operator time" if clock == "operator" else "device time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison.

    - `label`: its name in sentences; the two sides always have different labels.
    - `samples`: the batch size, which is the leading dimension of the first input; None without inputs.
    - `device`: that of the baseline; `created`, `tool`: the date of the report (``2026-11-28``) and its program. Empty in files
      of earlier versions.
    """

    label: str
    name: str
    spec: str
    mode: Mode
    inputs: tuple[InputInfo, ...]
    samples: int | None
    device: str = ""
    created: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric on both sides.

    - `config`: the configuration it was measured under; None for a counted metric.
    - `a`, `b`: the values; None where unknown.
    - `ratio`: b divided by a; None where a is zero or unknown.
    - `reason`: why the verdict is `noise`, `failed` or `not_comparable`. The values are given in these cases too.
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

    @property
    def change(self) -> int | None:
        """b minus a; None where one is unknown."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRatio:
    """The ratio of two step times, split into work and efficiency: ``time_ratio == work_ratio / efficiency_ratio``.

    - `work_ratio`, `efficiency_ratio`: None where the work of the sides does not compare.
    - `a_flops`, `b_flops`: counted FLOPs of the step, scaled where a configuration changes the batch size.
    - `a_flops_per_s`, `b_flops_per_s`: achieved FLOP/s, the counted FLOPs divided by the step time.
    - `per_sample_ratio`: the time ratio per example; None where both steps have the same number of examples.
    - `a_samples`, `b_samples`: examples per step.
    """

    config: str
    a_ns: int
    b_ns: int
    time_ratio: float
    a_flops: int
    b_flops: int
    work_ratio: float | None
    a_flops_per_s: float
    b_flops_per_s: float
    efficiency_ratio: float | None
    per_sample_ratio: float | None
    sentence: str
    a_samples: int | None = None
    b_samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmUse:
    """The kernels of one family that a layer ran in one phase.

    - `family`: one of the families in `records/families.py`.
    - `math`: the arithmetic of the kernels; None where their names do not state it.
    - `kernel_ns`: their time per step.
    - `part`: the part of the convolution, where parts were measured separately.
    - `flops_per_s`, `workspace_bytes`: figures of that part; None without `part`.
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
        return short_family_name(self.family) + (f" in {short_math_name(self.math)}" if self.math is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEfficiency:
    """The device time of one path in one phase on one side, and the time its FLOPs take at the reference rate.

    ``beyond_ns == device_ns - at_reference_ns``. All times are ns per step. Recomputation counts as backward, where it runs.

    - `flops_per_s`: counted FLOPs divided by device time; None where either is missing.
    - `algorithms`: the kernel families that ran, sorted by time, longest first.
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
        """The share of the first algorithm in the time of all algorithms."""
        total_ns = sum(use.kernel_ns for use in self.algorithms)
        return self.algorithms[0].kernel_ns / total_ns if total_ns > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEfficiency:
    """The step time of one side by layer: the `device_ns` of all `layers` + `rest_ns` = `step_ns`, exactly.

    - `rest_ns`: the step minus all attributed device time, so idle time and unattributed kernels. It is negative where kernels
      overlap or the traced steps were slower than the timed steps.
    - `beyond_ns`: the step time minus the time its FLOPs take at the reference rate. It is the sum of the layers' `beyond_ns`
      and of `rest_ns`.
    """

    step_ns: int
    flops: int
    layers: tuple[LayerEfficiency, ...]
    rest_ns: int
    beyond_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencySplit:
    """The difference between two step times under one configuration, split into work and efficiency.

    The slower side's `step_ns` - the faster side's `step_ns` = `work_ns` + the slower side's `beyond_ns`, exactly. The faster
    side's `beyond_ns` is 0.

    - `reference_flops_per_s`: the FLOP/s of the faster side over its step.
    - `work_ns`: the extra time of the slower side if it ran at the reference rate.
    - `sentence`: the layer that contributes most and its algorithm; empty where efficiency explains almost nothing.
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
        """The slower side, then the faster side."""
        return (self.b, self.a) if self.slower == "b" else (self.a, self.b)


ExplanationVerdict = Literal["wrong", "off", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A common explanation for the difference, tested against the measurements.

    - `config`: the configuration it was tested under; None where counts alone decide.
    - `predicts`, `measured`: the predicted and the measured outcome.
    - `verdict`: ``wrong`` if the measurement contradicts the explanation, ``off`` if the direction is right and the size is
      not, ``right`` otherwise.
    - `off_by`: measured divided by predicted, where the verdict is ``off``.
    - `sentence`: the result in one sentence.
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


MemoryPart = Literal[
    "parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries", "workspace", "rest"
]
MEMORY_PARTS: Final[tuple[MemoryPart, ...]] = get_args(MemoryPart)
PART_TITLES: Final = {part: part.replace("_", " ") for part in MEMORY_PARTS} | {"rest": "the rest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBytes:
    """Bytes of one part of the peak on both sides. None is unknown, for example the workspace without a device."""

    part: MemoryPart
    a: int | None
    b: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySplit:
    """The peak memory of both sides by part. On each side the known parts sum to the peak, exactly.

    - `config`: the configuration it was measured under; None for the predicted peak, which has no workspace.
    """

    config: str | None
    a_peak_bytes: int
    b_peak_bytes: int
    parts: tuple[PartBytes, ...]


LayerKind = Literal["changed", "added", "removed", "same", "renamed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFigures:
    """A layer's figures per step, excluding children. `saved_bytes` are bytes saved for backward.

    `backward_flops` includes recomputation; `flops` also includes the loss.
    """

    flops: int = 0
    macs: int = 0
    params: int = 0
    saved_bytes: int = 0
    device_ns: int | None = None
    forward_flops: int = 0
    backward_flops: int = 0
    forward_macs: int = 0
    trainable_params: int = 0
    param_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChange:
    """A layer that exists in a, in b, or in both.

    - `kind`: `changed`, `added`, `removed`, `same` or `renamed`.
    - `a_path`, `b_path`: its path on each side; None where it does not exist.
    - `change`: the change in words.
    - `contribution`: the largest share that the layer's change has in a total: FLOPs, parameters, saved bytes or device time.
    - `role`: ``edited`` if the layer itself was changed, ``affected`` if only its figures changed. Older files have none.
    - `edits`: the edits it belongs to or is affected by, as indices in `Comparison.edits`.
    """

    kind: LayerKind
    a_path: str | None
    b_path: str | None
    class_name: str
    change: str
    a: LayerFigures
    b: LayerFigures
    contribution: float
    role: Role | None = None
    edits: tuple[int, ...] = ()

    @property
    def figures(self) -> FigureChanges:
        """The changes of the figures, b minus a."""
        return FigureChanges(
            flops=self.b.flops - self.a.flops,
            forward_flops=self.b.forward_flops - self.a.forward_flops,
            backward_flops=self.b.backward_flops - self.a.backward_flops,
            macs=self.b.forward_macs - self.a.forward_macs,
            params=self.b.params - self.a.params,
            trainable_params=self.b.trainable_params - self.a.trainable_params,
            param_bytes=self.b.param_bytes - self.a.param_bytes,
            saved=self.b.saved_bytes - self.a.saved_bytes,
        )

    @property
    def path(self) -> str:
        """The path in b, or the path in a for a removed layer."""
        return self.b_path if self.b_path is not None else self.a_path or ""

    @property
    def device_ns_change(self) -> int | None:
        """Device time of b minus a; None where either was not measured."""
        return None if self.a.device_ns is None or self.b.device_ns is None else self.b.device_ns - self.a.device_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Views, Saved, kind="comparison"):
    """Two reports compared.

    - `config`: the configuration of the layers' device times; `clock`: the clock of these times.
    - `metrics`: every counted and measured metric on both sides.
    - `times`: step-time ratios split into work and efficiency, one per configuration.
    - `memory`: peaks by part.
    - `layers`: edited layers, then affected layers, each sorted by contribution, largest first. On each side their figures
      sum to the report's totals.
    - `edits`: what was edited, the edit with the largest effect first. `consequences`: the layers that are affected by edits. The
      figures of both sum to the differences of the totals, exactly.
    - `groups`: the changed layers in few rows, by edit and by subtree; the edits first.
    - `reasons`: why each metric differs, in the order of `metrics`.
    - `checkpoint`: what a checkpoint of a lacks for b; None where a report does not record its state.
    - `sentences`: the result. `notes`: limits of the comparison.
    - `telling`: the configurations that sentences and summaries mention: the baseline, and the flag with the largest effect.
      The tables list all configurations.
    - `convention`: the FLOP convention of both sides; None where nothing was counted.
    - `efficiencies`, `explanations`: given for the configurations in `telling`.
    - `steps`: the mean traced steps of both sides under `config`, compared as traces are: phases, causes of idle time, operators,
      kernels and waits. None without a trace of both sides, and in files of earlier versions.
    - `exact`: whether all work of both sides is counted: every op has a formula, and no count is a bound.
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
    edits: tuple[Edit, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    groups: tuple[LayerGroup, ...] = ()
    reasons: tuple[MetricReason, ...] = ()
    checkpoint: CheckpointChange | None = None
    steps: TraceComparison | None = None
    exact: bool = True

    def refusal(self, metric: str, config: str | None = None) -> str:
        """Why `metric` is not comparable or failed; empty if it is comparable. Every table and sentence uses this text."""
        refused = (row for row in self.metrics if (row.metric, row.config) == (metric, config))
        return next((row.reason for row in refused if row.verdict in ("not_comparable", "failed")), "")

    def reason(self, metric: str, config: str | None = None) -> MetricReason | None:
        """Why `metric` differs; None where it does not differ or is not comparable."""
        return next((each for each in self.reasons if (each.metric, each.config) == (metric, config)), None)

    def __repr__(self) -> str:
        ratio = f"{text(self.times[0].time_ratio, 'ratio')} the step time, " if self.times else ""
        changed = sum(layer.kind != "same" for layer in self.layers)
        return f"<Comparison {self.a.label} -> {self.b.label}: {ratio}{changed} of {plural(len(self.layers), 'layer')} changed>"

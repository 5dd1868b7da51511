"""Counts of one step, obtained without running it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from profiler_kit.records.parallel import ParallelPlan
from profiler_kit.records.samples import Interval
from profiler_kit.records.variation import Variation

Phase = Literal["data", "transfer", "forward", "loss", "backward", "recompute", "optimizer", "communication", "other"]
TRACE_PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
# In a run, collectives belong to the phase that launches them.
PHASES: Final[tuple[Phase, ...]] = tuple(phase for phase in TRACE_PHASES if phase != "communication")

CountPhase = Literal["forward", "loss", "backward", "recompute"]
COUNT_PHASES: Final[tuple[CountPhase, ...]] = get_args(CountPhase)

DEFAULT_CONVENTION: Final = "kit"

# Paths that are not modules. They are used like module paths; a module path never contains brackets.
LOSS_PATH: Final = "(loss)"
OPTIMIZER_PATH: Final = "(optimizer)"
TRANSFER_PATH: Final = "(transfer)"
DATA_PATH: Final = "(data)"
COMMUNICATION_PATH: Final = "(communication)"  # of collectives, in traces of several ranks
PSEUDO_PATHS: Final = (LOSS_PATH, OPTIMIZER_PATH, TRANSFER_PATH, DATA_PATH, COMMUNICATION_PATH)
# The path of work that runs in a phase and in no module; in other phases it is the root.
PHASE_PATHS: Final[dict[Phase, str]] = {
    "data": DATA_PATH, "transfer": TRANSFER_PATH, "loss": LOSS_PATH, "optimizer": OPTIMIZER_PATH,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Shape, dtype and size of a tensor, without data.

    - `stored`: the number of stored elements of a sparse tensor, where known.
    - `values`: the elements of a small integer tensor that its op's formula reads, such as lengths of sequences, where known.
    """

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    stored: int | None = None
    values: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The counted cost of an op, module or phase. Costs add.

    - `macs`: multiply-accumulates of contractions.
    - `flops`: floating-point operations, including pointwise work. A MAC is two, so ``flops >= 2 * macs``.
    - `read_bytes`, `write_bytes`: each operand moved once, a lower bound on memory traffic.
    """

    macs: int = 0
    flops: int = 0
    read_bytes: int = 0
    write_bytes: int = 0

    def __post_init__(self) -> None:
        if self.flops < 2 * self.macs:
            raise ValueError(f"{self.flops} FLOPs are fewer than twice {self.macs} MACs")

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            macs=self.macs + other.macs,
            flops=self.flops + other.flops,
            read_bytes=self.read_bytes + other.read_bytes,
            write_bytes=self.write_bytes + other.write_bytes,
        )

    @property
    def bytes_moved(self) -> int:
        """Operand bytes read and written: the minimum traffic."""
        return self.read_bytes + self.write_bytes


ZERO: Final = Cost()


class OpRecord(NamedTuple):
    """One executed op, or `calls` equal ones. `cost` is the cost of one call; None is unknown, a zero cost is known to be zero.

    A named tuple, because a step has thousands of them.
    """

    op: str
    path: str
    phase: CountPhase
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    cost: Cost | None
    calls: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """A distinct storage that autograd saves for backward, parameters and inputs excluded.

    - `created_in`: the module whose op created it.
    - `saved_in`: the module whose op saved it first.
    - `held_in`: all modules whose ops save it.
    """

    created_in: str
    saved_in: str
    held_in: tuple[str, ...]
    tensor: TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSizes:
    """The sizes of a convolution, a linear or a recurrent layer: inputs and outputs are channels or features.

    `kernel`: one size per dimension, or one for all of them; empty for other layers than convolutions.
    """

    inputs: int
    outputs: int
    kernel: tuple[int, ...] = ()
    groups: int = 1
    is_strided: bool = False


# Reports before 2026-11-27 have the sizes in `ModuleNode.config` alone: "30->50, k16, p7" or "8->8, k3x5, s2, g8, no bias".
_SIZES: Final = re.compile(
    r"(?P<inputs>\d+)->(?P<outputs>\d+)(, k(?P<kernel>\d+(x\d+)*))?(?P<stride>, s\d)?(.*?\bg(?P<groups>\d+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleNode:
    """The figures of one module excluding children ("self"). Totals are computed where they are displayed.

    - `path`: the name in ``named_modules()``; ``""`` for the root. `aliases`: further names of the same module.
    - `config`: the constructor arguments of the layer as text. `sizes`: those of them that are sizes, where it has some.
    - `settings`: its public plain attributes, each as ``name=value``; of the root also those of its ``config`` object.
    - `state`: its own keys in ``state_dict()`` with shapes, each as ``weight 64x3x7x7``; None in older reports.
    - `forward_ops`: the ops that its own code calls in forward, with the number per call of the module (``aten.relu x2``),
      sorted; empty for modules of torch.
    - `order`: the position of the end of its first call among all calls of the step's forward pass; None if it was not called.
    - `calls`: forward calls per step.
    - `params`, `param_bytes`: each parameter counts once, in the first module that has it.
    - `forward`, `loss`, `backward`, `recompute`: cost by phase.
    - `output_bytes`: bytes that its calls returned. `output_shape`: the shape of the first output tensor; None without one.
    - `saved_bytes`: storages that the module's own ops saved for backward first. These sum to the total.
    - `held_bytes`: all storages that the module's own ops save, including shared ones. These do not sum to the total.
    """

    path: str
    class_name: str
    aliases: tuple[str, ...] = ()
    config: str = ""
    calls: int = 0
    params: int = 0
    trainable_params: int = 0
    param_bytes: int = 0
    forward: Cost = ZERO
    loss: Cost = ZERO
    backward: Cost = ZERO
    recompute: Cost = ZERO
    output_bytes: int = 0
    output_shape: tuple[int, ...] | None = None
    saved_bytes: int = 0
    held_bytes: int = 0
    settings: tuple[str, ...] = ()
    state: tuple[str, ...] | None = None
    forward_ops: tuple[str, ...] = ()
    order: int | None = None
    sizes: LayerSizes | None = None

    @property
    def layer_sizes(self) -> LayerSizes | None:
        """The sizes of the layer, also for a report of an earlier version; None where it has none."""
        if self.sizes is not None or (match := _SIZES.match(self.config)) is None:
            return self.sizes
        return LayerSizes(
            inputs=int(match["inputs"]),
            outputs=int(match["outputs"]),
            kernel=tuple(map(int, match["kernel"].split("x"))) if match["kernel"] else (),
            groups=max(1, int(match["groups"] or 1)),
            is_strided=match["stride"] is not None,
        )

    def cost(self, phase: CountPhase) -> Cost:
        """The module's cost in `phase`, excluding children."""
        cost: Cost = getattr(self, phase)
        return cost

    @property
    def step_cost(self) -> Cost:
        """The module's cost per step, excluding children."""
        return self.forward + self.loss + self.backward + self.recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTotal:
    """Calls and cost of one op in one phase of the step. `cost` is None where the op has no formula."""

    op: str
    phase: CountPhase
    calls: int
    cost: Cost | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionUse:
    """Calls of scaled dot-product attention in forward that run as one kernel.

    - `kernel`: ``flash``, ``memory-efficient``, ``cuDNN``, or ``math``, which is not fused.
    - `dtype`: the type of the queries.
    """

    kernel: str
    dtype: str
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UncountedOp:
    """An op without a formula: its calls per step, and the modules that call it.

    - `possible_macs`: a limit of the MACs of all calls, if the op contracts its operands: each element of one operand meets each
      of another. None is unknown: the op takes functions, or the report is older.
    """

    op: str
    calls: int
    paths: tuple[str, ...]
    possible_macs: int | None = None


BoundKind = Literal["upper", "lower", "drawn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountBound:
    """Work that depends on unknown values, so that the count is a bound of it, or one case.

    - `op`: the op whose work depends on the values.
    - `kind`: ``upper`` if the real work can be less than counted, ``lower`` if it can be more, ``drawn`` if random
      values decided.
    - `reason`: the unknown values, and the work that is counted.
    - `where`: the line of the model, as ``file.py:41``; empty where unknown.
    """

    op: str
    kind: BoundKind
    reason: str
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCategories:
    """Bytes by purpose. None is unknown, for example `workspace` without a device."""

    parameters: int | None = None
    gradients: int | None = None
    optimizer_state: int | None = None
    inputs: int | None = None
    saved_activations: int | None = None
    temporaries: int | None = None
    workspace: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """Live bytes at a point of the step. `at` names the point: ``phase`` or ``phase path op``."""

    at: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """The part of one category or module in each point of a timeline, in bytes. `name`: the category, or the module's path."""

    name: str
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleMemory:
    """The tensors of one module that are saved for backward, excluding children, parameters and inputs.

    - `created_bytes`: saved storages that its own ops created. These sum to the total.
    - `saved_bytes`: saved storages that its own ops saved first. These sum to the total.
    - `held_bytes`: all storages that its own ops save, including shared ones. These do not sum to the total.
    - `inside_bytes`: saved storages that only this module and its children create and save. Checkpointing the module frees
      them. These do not sum to the total.
    """

    path: str
    created_bytes: int = 0
    saved_bytes: int = 0
    held_bytes: int = 0
    inside_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryWorkspace:
    """The workspace that a library or kernel allocates for an op, beyond its results, as an interval.

    - `source`: the origin of the figures.
    """

    op: str
    path: str
    phase: Phase
    low_bytes: int
    likely_bytes: int
    high_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The predicted memory of a step on a device: tensors, workspace and allocator rounding.

    - `profile`: the memory profile of the device family. `card`: the card it was predicted for.
    - `allocated_bytes`: the likely peak. It equals the sum of `categories` plus `rounding_bytes`, exactly.
    - `allocated_low_bytes`, `allocated_high_bytes`: the peak if every uncertain workspace is as small, or as large, as possible,
      with a margin of 0.5 % and 256 KiB for what no rule covers.
    - `reserved_bytes`, `reserved_high_bytes`: segments that the allocator holds after the steps.
    - `categories`: the likely peak by purpose.
    - `peak_phase`, `peak_path`, `peak_op`: the op at the likely peak.
    - `after_forward_bytes`: requested bytes at the start of backward.
    - `context_bytes`: memory of the driver and the libraries outside the allocator; None where unknown.
    - `timeline`: the largest requested bytes in each part of the step, in order.
    - `by_category`: their parts by category, which sum to them. `by_module`: their parts by the module whose ops allocated them,
      for the modules with the largest parts. Both are empty in reports of earlier versions.
    - `uncertain`: the workspaces that widen the interval, largest first.
    - `kept_bytes`: the part of the workspace that libraries keep after the step. A probe of single ops cannot tell it from
      tensors.
    - `is_default`: nobody selected the device and this machine has none, so summaries do not show it.
    """

    profile: str
    card: str = ""
    allocated_bytes: int
    allocated_low_bytes: int
    allocated_high_bytes: int
    reserved_bytes: int
    categories: MemoryCategories
    rounding_bytes: int
    peak_phase: Phase
    peak_path: str
    peak_op: str
    after_forward_bytes: int
    context_bytes: int | None = None
    reserved_high_bytes: int | None = None
    timeline: tuple[MemoryPoint, ...] = ()
    by_category: tuple[MemoryLine, ...] = ()
    by_module: tuple[MemoryLine, ...] = ()
    uncertain: tuple[LibraryWorkspace, ...] = ()
    kept_bytes: int | None = None
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """The memory questions of the command line.

    - `batches`: further batch sizes to predict.
    - `fits_bytes`: the memory of the device that the step must fit into.
    - `checkpoint`: paths of modules to checkpoint, or ``auto`` alone.
    - `variations`: other changes to predict (``--what-if``).
    """

    batches: tuple[int, ...] = ()
    fits_bytes: int | None = None
    checkpoint: tuple[str, ...] = ()
    variations: tuple[Variation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The predicted memory of the step after one change.

    - `change`: the change in words.
    - `total_bytes`: reserved plus context, with likely workspace. `total_high_bytes`: the same with the largest workspace.
    - `difference_bytes`: the likely peak minus that of the unchanged step.
    - `batch`, `checkpoint`, `amp`, `optimizer`, `zero_grad`: the change, as in `Variation`.
    - `in_place`: the activations that were switched to in-place, which only older reports have.
    - `recompute_flops`: FLOPs computed again in backward. `recompute_percent`: their share of the step's FLOPs.
    - `recompute_ns`: the least time of these FLOPs by the roofline; None where no hardware was named.
    - `fits`: whether the step fits into the requested memory; None where no memory was requested.
    - `kernel_ns`, `step_ns`: the predicted kernel time and time of the step; None without a forecast.
    """

    change: str
    allocated_bytes: int
    allocated_low_bytes: int
    allocated_high_bytes: int
    total_bytes: int
    total_high_bytes: int
    saved_bytes: int | None = None
    batch: int | None = None
    checkpoint: tuple[str, ...] = ()
    recompute_flops: int | None = None
    fits: Literal["yes", "likely", "no"] | None = None
    difference_bytes: int | None = None
    recompute_percent: float | None = None
    recompute_ns: float | None = None
    amp: str | None = None
    optimizer: str | None = None
    zero_grad: str | None = None
    in_place: tuple[str, ...] = ()
    kernel_ns: int | None = None
    step_ns: int | None = None

    @property
    def examples_per_s(self) -> float | None:
        """Predicted examples per second; None without a forecast, or where the change does not set the batch."""
        return 1e9 * self.batch / self.step_ns if self.batch and self.step_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """The collectives of one kind in a step.

    - `calls`: their number. `forward_calls`, `backward_calls`: those of the two phases; others are of the loss or the optimizer.
    - `message_bytes`: their full messages, such as the gathered parameters.
    - `sent_bytes`: what one rank sends if the collective runs as a ring.
    """

    collective: str
    calls: int
    message_bytes: int
    sent_bytes: int
    forward_calls: int | None = None
    backward_calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelEstimate:
    """The predicted peak of tensor bytes of one rank, and what it communicates in a training step.

    - `peak_bytes`: equal to the sum of `categories`. `single_peak_bytes`: of one device that trains alone.
    - `device_peak_bytes`: with workspace and rounding, which are those of a device that trains alone; None without a device.
    - `parameter_bytes`: the parameters that one rank keeps over the step.
    - `units`: the paths of the modules that are gathered and freed on their own, beside the root; empty except for ``fsdp2``.
    """

    plan: ParallelPlan
    peak_bytes: int
    single_peak_bytes: int
    categories: MemoryCategories
    units: tuple[str, ...] = ()
    communication: tuple[Communication, ...] = ()
    parameter_bytes: int | None = None
    device_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The predicted tensor bytes at the peak of a step, from tensor lifetimes. Excludes allocator rounding and workspace.

    - `peak_bytes`: the peak; equal to the sum of `categories`. `peak_at`, `peak_phase`, `peak_path`, `peak_op`: its place.
    - `saved_bytes`: distinct storages saved for backward, parameters and inputs excluded.
    - `after_forward_bytes`: live bytes at the start of backward. `end_bytes`: live bytes at the end of the step.
    - `modules`: the saved bytes by module.
    - `device`: the prediction for a device, including workspace and the allocator.
    - `traced_on`: the kind of tensors the step ran on (``meta``, ``cpu``).
    - `what_ifs`: predictions after changes; `what_if_notes`: their limits. `parallel`: predictions for one rank of several.
    - `notes`: exclusions and their reasons.
    """

    peak_bytes: int
    peak_at: str
    categories: MemoryCategories
    timeline: tuple[MemoryPoint, ...] = ()
    peak_phase: Phase | None = None
    peak_path: str | None = None
    peak_op: str | None = None
    saved_bytes: int | None = None
    after_forward_bytes: int | None = None
    end_bytes: int | None = None
    modules: tuple[ModuleMemory, ...] = ()
    device: DeviceMemory | None = None
    traced_on: str | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    what_if_notes: tuple[str, ...] = ()
    parallel: tuple[ParallelEstimate, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerForecast:
    """The predicted kernel time of a module's own ops in one phase, in ns; `high_ns`: upper end of its 80 % interval."""

    path: str
    phase: Phase
    kernel_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingForecast:
    """The predicted kernel time of the step with one setting, named as in a configuration (``amp_bf16``)."""

    setting: str
    kernel_ns: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedOp:
    """An op that was never recorded: its price is that of similar ops of its size."""

    op: str
    calls: int
    kernel_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The predicted time of a step. Each interval should contain four of five measured times.

    - `device`: the card. `source`: where its prices were recorded. `is_scaled`: on another card, scaled by datasheet peaks.
    - `kernel_ns`: the sum of all kernels of a step. `host_ns`: the time in which the reference host launches them.
    - `step_ns`: a replay of both, with the launch queue between them.
    - `calls`: op calls of a step. `modules`: kernel time by module and phase; sums to the median of `kernel_ns`.
    - `estimated`: ops without recorded calls, longest first.
    - `settings`: the step with other settings; predicted where the step is measured too.
    - `host_factor`: how many times as long as the reference host the user's host takes per op.
    """

    device: str
    source: str
    is_scaled: bool
    kernel_ns: Interval
    host_ns: Interval
    step_ns: Interval
    calls: int
    modules: tuple[LayerForecast, ...]
    estimated: tuple[EstimatedOp, ...] = ()
    settings: tuple[SettingForecast, ...] = ()
    host_factor: float = 1.0

    def with_setting(self, setting: str) -> Interval | None:
        """The predicted kernel time with `setting`; None where it was not predicted."""
        return next((other.kernel_ns for other in self.settings if other.setting == setting), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheckLayer:
    """MACs of the forward pass of a module including children, by the kit and by another counter."""

    path: str
    kit_macs: int
    peer_macs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """The kit's count of the forward pass compared with that of another counter on the same model, in MACs.

    - `peer`, `version`: the other counter.
    - `peer_macs`: None where the other counter failed. `failure` then gives the reason.
    - `layers`: the modules for which either of them counts MACs; empty where the other counter failed.
    - `notes`: limits, for example ops that the other counter reports as uncounted.
    """

    peer: str
    version: str | None
    kit_macs: int
    peer_macs: int | None
    layers: tuple[CrossCheckLayer, ...] = ()
    failure: str | None = None
    hint: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCount:
    """The counts of one step of a target.

    - `convention`: the definition of work, in words. `convention_name`: its name for ``--convention``.
    - `forward`, `loss`, `backward`, `recompute`: cost by phase. Each is exactly the sum over `modules`.
    - `saved_bytes`: bytes of distinct storages saved for backward.
    - `uncounted`: ops without a formula.
    - `bounds`: work that depends on unknown values; with any, the count is a bound.
    - `modules`: modules in pre-order, with figures excluding children. A separate loss function has the path ``(loss)``.
    - `memory`: the predicted memory; None where it was not predicted.
    - `device`, `torch`: the device and the torch version that decomposed the ops.
    - `kernels_of`: the device whose kernels are counted (fused attention, dropout, recurrent layers, autocast); None where the
      ops are those of the tensors' own device.
    - `attention`: the kernels of attention.
    - `autocast`: the type to which autocast casts in the counted step; None without autocast.
    - `coverage_percent`: the share of op calls that are counted or known to be zero.
    - `cross_checks`: comparisons with other counters.
    - `forecast`: the predicted time of the step on the device that the user named; None where none was.
    """

    convention: str
    params: int
    trainable_params: int
    param_bytes: int
    forward: Cost
    loss: Cost
    backward: Cost
    recompute: Cost
    saved_bytes: int
    uncounted: tuple[UncountedOp, ...]
    modules: tuple[ModuleNode, ...]
    ops: tuple[OpTotal, ...] = ()
    memory: MemoryEstimate | None = None
    device: str = "meta"
    torch: str | None = None
    notes: tuple[str, ...] = ()
    coverage_percent: float | None = None
    convention_name: str = DEFAULT_CONVENTION
    cross_checks: tuple[CrossCheck, ...] = ()
    kernels_of: str | None = None
    attention: tuple[AttentionUse, ...] = ()
    autocast: str | None = None
    bounds: tuple[CountBound, ...] = ()
    forecast: Forecast | None = None

    @property
    def step(self) -> Cost:
        """The cost of the step: forward + loss + backward + recompute."""
        return self.forward + self.loss + self.backward + self.recompute


def is_inside(path: str, module: str) -> bool:
    """Return whether `path` is `module` or one of its submodules."""
    return path == module or (module != "" and path.startswith(f"{module}."))

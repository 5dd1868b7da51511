"""Static facts: what one step asks for, counted without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from profiler_kit.records.variation import Variation

Phase = Literal["data", "transfer", "forward", "loss", "backward", "recompute", "optimizer", "other"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)

CountPhase = Literal["forward", "loss", "backward", "recompute"]
COUNT_PHASES: Final[tuple[CountPhase, ...]] = get_args(CountPhase)

DEFAULT_CONVENTION: Final = "kit"

# Owners that are no module. They stand beside module paths wherever a path names an owner; no module path has brackets.
LOSS_PATH: Final = "(loss)"
OPTIMIZER_PATH: Final = "(optimizer)"
TRANSFER_PATH: Final = "(transfer)"
DATA_PATH: Final = "(data)"
COMMUNICATION_PATH: Final = "(communication)"  # of collectives, in traces of several ranks
PSEUDO_PATHS: Final = (LOSS_PATH, OPTIMIZER_PATH, TRANSFER_PATH, DATA_PATH, COMMUNICATION_PATH)
# The owner of what runs in a phase and in no module; in the other phases that is the root.
PHASE_PATHS: Final[dict[Phase, str]] = {
    "data": DATA_PATH, "transfer": TRANSFER_PATH, "loss": LOSS_PATH, "optimizer": OPTIMIZER_PATH,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Shape, dtype name and bytes of a tensor; no data. `stored`: elements a sparse tensor holds, where known."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    stored: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an op, module or phase asks for. Costs add.

    `macs`: multiply-accumulates of contractions. `flops`: floating-point operations, a MAC being two, pointwise work
    included, so ``flops >= 2 * macs``. `read_bytes`, `write_bytes`: each operand moved once, a lower bound on traffic.
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
    """One executed op, or `calls` alike. `cost` is that of one; None is unknown, a zero cost is known to be zero.

    A named tuple, since a step has thousands of them.
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
    """A distinct storage autograd keeps for backward, parameters and inputs excluded.

    `created_in` is the module whose op made it, `saved_in` the module whose op kept it first, `held_in` all that keep it.
    """

    created_in: str
    saved_in: str
    held_in: tuple[str, ...]
    tensor: TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleNode:
    """One module's own (self) figures, without its descendants'; totals are computed by whoever shows them.

    `path` is the name in ``named_modules()``, the root's is ``""``; `aliases` are further names of the same module.
    `params` and `param_bytes` count each parameter once, at its first owner. `saved_bytes` are storages first saved by the
    module's own ops, so they sum to the total; `held_bytes` are all storages its own ops keep, shared ones included, so
    they don't. `output_bytes` is what its calls returned.
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

    def cost(self, phase: CountPhase) -> Cost:
        """The module's own cost in `phase`."""
        cost: Cost = getattr(self, phase)
        return cost

    @property
    def step_cost(self) -> Cost:
        """The module's own cost over the whole step."""
        return self.forward + self.loss + self.backward + self.recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTotal:
    """Calls and cost of one op over the whole step, in one phase; `cost` None where no formula is known."""

    op: str
    phase: CountPhase
    calls: int
    cost: Cost | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UncountedOp:
    """An op for which no formula is known: how often it ran, in which modules."""

    op: str
    calls: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCategories:
    """Bytes by what they are for. None where it can't be known (workspace without a device)."""

    parameters: int | None = None
    gradients: int | None = None
    optimizer_state: int | None = None
    inputs: int | None = None
    saved_activations: int | None = None
    temporaries: int | None = None
    workspace: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """Live bytes at a point of the step, named as ``phase`` or ``phase path op``."""

    at: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleMemory:
    """One module's part in what is kept for backward, parameters and inputs excluded; self figures, as in `ModuleNode`.

    `created_bytes`: kept storages that its own ops made; `saved_bytes`: kept storages that its own ops saved first. Each of
    the two sums to the total. `held_bytes`: all storages its own ops keep, shared ones too, so they don't sum. `inside_bytes`:
    kept storages that it and its parts make and nobody else keeps, which checkpointing it lets go of; they don't sum either.
    """

    path: str
    created_bytes: int = 0
    saved_bytes: int = 0
    held_bytes: int = 0
    inside_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryScratch:
    """Bytes that a library or kernel takes behind an op, beyond its results: an interval, and where it is known from."""

    op: str
    path: str
    phase: Phase
    low_bytes: int
    likely_bytes: int
    high_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What a step needs on a device of the kind that `profile` names, such as `card`: tensors, library scratch, rounding.

    `categories` take apart the likely peak at the moment it happens; their sum and `rounding_bytes` are
    `allocated_bytes`, exactly. `allocated_low_bytes` and `allocated_high_bytes` are the peak where every uncertain scratch
    is as small, or as large, as it may be. `reserved_bytes` are the segments the allocator holds after the steps;
    `context_bytes` what the driver and the libraries take outside of it. `after_forward_bytes`: requested when backward
    begins. `timeline`: requested bytes at the phases' ends and at the peak. `uncertain`: what widens the interval, most first.
    `kept_bytes`: the part of the workspace that libraries keep for good, which a probe of single ops can't tell from tensors.
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
    uncertain: tuple[LibraryScratch, ...] = ()
    kept_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuestions:
    """What is asked about a step's memory: at other batch sizes, whether it fits, with modules checkpointed, varied otherwise.

    `checkpoint` holds paths of modules, or ``auto`` alone. `fits_bytes` is the memory of the device that is to hold it all.
    """

    batches: tuple[int, ...] = ()
    fits_bytes: int | None = None
    checkpoint: tuple[str, ...] = ()
    variations: tuple[Variation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The memory of the step with something changed, simulated: another `batch`, modules at the paths in `checkpoint`.

    `total_bytes`: reserved and context, with likely scratch; `total_high_bytes`: with the most scratch. `difference_bytes`:
    its likely peak beyond that of the step as it is. `recompute_flops`: what is computed again in backward,
    `recompute_percent`: as a share of the step's FLOPs, `recompute_ns`: the least time that takes by the roofline, None where
    no hardware was named. `fits`: into the memory asked for, surely, likely or not; None where none was. `in_place`: the
    activations that were switched. The others are as in `Variation`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Tensor bytes a step holds at its peak, from tensor lifetimes alone: allocator rounding and library workspace excluded.

    `categories` sum to `peak_bytes`. `saved_bytes`: distinct storages kept for backward when it begins, parameters and
    inputs excluded. `after_forward_bytes`: held when backward begins. `modules`: each module's part in what is kept.
    `device`: the same step on a device, with what libraries and the allocator add. `traced_on`: the kind of tensors the
    step ran on (``meta``, ``cpu``). `what_ifs`: the same with something changed; `what_if_notes`: what to know
    about them. `notes`: what the figures leave out, and why.
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
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheckRow:
    """MACs of one op in one module and phase, by the kit and by a peer, in one step; `reason` says why they differ.

    `reason` is empty where they agree. `op` is the peer's name of it, or the dispatcher's.
    """

    op: str
    path: str
    phase: CountPhase
    calls: int
    kit_macs: int
    peer_macs: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheckLayer:
    """MACs of a module with its descendants: by the kit, and as the peer itself says; None where it does not name it.

    `expected_macs` is what the peer's formulas give for the ops that are the module's by the kit's attribution.
    """

    path: str
    kit_macs: int
    expected_macs: int
    peer_macs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """The kit's count beside that of another counter, run on the same model; in MACs, which both can be told in.

    `rows` sum to `kit_macs` and, where the peer ran, to `peer_macs`, exactly: what no formula explains is a row of its own.
    There are none where the peer's formulas could not be applied.
    `peer_macs` is None where the peer did not run; `failure` says why, and the rows are what its formulas give. `covers` are
    the phases it looks at. `notes` hold what else has to be known, as the ops that it says it does not count.
    """

    peer: str
    version: str | None
    covers: tuple[CountPhase, ...]
    kit_macs: int
    peer_macs: int | None
    rows: tuple[CrossCheckRow, ...]
    layers: tuple[CrossCheckLayer, ...] = ()
    failure: str | None = None
    hint: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCount:
    """Everything counted for one step of a target. Modules are a flat pre-order tuple of self figures.

    Sum of the modules' self costs = `forward`, `loss`, `backward`, `recompute`, each exactly. The loss function given
    beside the model is the pseudo-module ``(loss)``. `torch` is the version that decomposed the ops. `coverage_percent` is
    the share of op calls that are counted or known to be zero; the others are in `uncounted`. `convention_name` is what
    ``--convention`` calls the definition of work that `convention` describes. `cross_checks`: the kit's count beside others'.
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

    @property
    def step(self) -> Cost:
        """The whole step's cost: forward + loss + backward + recompute."""
        return self.forward + self.loss + self.backward + self.recompute

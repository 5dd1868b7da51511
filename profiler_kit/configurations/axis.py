"""The record of an axis: a change that a configuration may apply, in addition to cuDNN's flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from profiler_kit.records.target import TargetInfo, TargetSpec

if TYPE_CHECKING:
    import torch

ON: Final = "on"  # the value of a switch
CUDA: Final = frozenset({"cuda"})
EVERYWHERE: Final = frozenset({"cuda", "cpu", "mps"})


def switch(value: str) -> str:
    """Parse the value of a switch, which is only on or off. Raises ValueError for any value but ``on``."""
    if value != ON:
        raise ValueError("it does not take a value")
    return ON


def nowhere(value: str, device: str, info: TargetInfo | None) -> str | None:
    """No reason to skip the axis on any device or target."""
    return None


class StepControls(Protocol):
    """The parts of a step that an axis may change: the worker's runner, after the target is built and before the first step.

    `reads_loss`: a step reads the loss, which waits for the device.
    `unobservable_reason`: why ops cannot be observed one by one; None if they can.
    `has_own_memory_pool`: CUDA graphs have a memory pool of their own, which allocations do not show.
    `notes`: sentences for the report.
    """

    reads_loss: bool
    unobservable_reason: str | None
    has_own_memory_pool: bool
    notes: list[str]

    @property
    def device(self) -> torch.device:
        """The device that the target is on."""

    @property
    def info(self) -> TargetInfo:
        """The resolved target."""

    @property
    def step_module(self) -> torch.nn.Module:
        """The module that a step calls."""

    def replace_module(self, runs: torch.nn.Module) -> None:
        """Make steps call `runs`, which computes the same as the target's model."""

    def checkpoint(self, paths: Sequence[str]) -> None:
        """Checkpoint the modules at `paths`: backward repeats their forward. Raises UsageError for an unknown path."""

    def capture_graphs(self) -> None:
        """Replay forward and backward as CUDA graphs, which the first step captures."""

    def capture_step(self) -> None:
        """Replay forward, loss, backward and optimizer as one CUDA graph, which the first step captures."""

    def configure_loader(self, *, workers: int | None = None, pinned: bool = False) -> None:
        """Load data with `workers` processes, and into pinned memory. Raises TargetError without a DataLoader."""

    def fuse_optimizer(self) -> None:
        """Replace the optimizer, if any, by its fused form. Raises TargetError if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of a script by a configuration: the line to paste, and its usual effects on memory and on results.

    ``{}`` is the value, ``{device}`` the type of the device, ``{optimizer}`` the class of the optimizer. `in_training`: the
    effect on results exists in training only. `reduced`: it computes with fewer bits.
    """

    line: str
    memory: str = ""
    numerics: str = ""
    in_training: bool = False
    reduced: bool = False

    def filled(self, **values: str) -> Change:
        """This change with `values` in the place of their names; the name ``value`` is that of ``{}``."""
        line, numerics = self.line, self.numerics
        for name, value in values.items():
            place = "{}" if name == "value" else f"{{{name}}}"
            line, numerics = line.replace(place, value), numerics.replace(place, value)
        return replace(self, line=line, numerics=numerics)


SAME_PRECISION: Final = "same precision, other rounding"
SAME_RESULTS: Final = "same results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One entry of `AXES` in a file of `configurations/axes/`.

    Name and values:

    `name`: the axis in a configuration's name (``channels_last``, ``batch=2x``).
    `doc`: one line for help.
    `devices`: the device types that the axis applies to.
    `values`: the syntax of the value after ``=``; "" for a switch.
    `bare`: the value of the name alone; "" if a value is required.
    `flag`: the cuDNN flag that the axis requires and sets; "" for none.
    `excludes`: axes that cannot be combined with this one.
    `several`: the axis may occur several times in a name, and all its values apply.
    `fresh`: steps with and without it can't alternate in one process; it needs one of its own.
    `read`: normalizes a value, or raises ValueError with the problem.
    `skip_reason`: why a value would change nothing on a device (``cuda``, ``cpu``, ``mps``) for a target (None: unknown);
    None if it would change something.

    Effects, all optional, run in the worker in the order of the axes' names. Each gets the value (several values are joined
    by commas) and may raise KitError:

    `process`: sets up the process before the target is loaded, and again afterwards because a model's file may set the same.
    `spec`: changes how the target is built.
    `runner`: changes the step, after the target is built and before the first step.
    `replicas`: options of DistributedDataParallel, where the model is wrapped in it.
    `change`: the line that applies the axis in a script; None where no line does.
    """

    name: str
    doc: str
    devices: frozenset[str]
    values: str = ""
    bare: str = ON
    flag: str = ""
    excludes: frozenset[str] = frozenset()
    several: bool = False
    fresh: bool = False
    parse_value: Callable[[str], str] = switch
    skip_reason: Callable[[str, str, TargetInfo | None], str | None] = nowhere
    process: Callable[[str, str], None] | None = None
    spec: Callable[[str, TargetSpec], TargetSpec] | None = None
    runner: Callable[[str, StepControls], None] | None = None
    replicas: Callable[[str], Mapping[str, object]] | None = None
    change: Change | None = None

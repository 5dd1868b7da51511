"""What an axis is: something beside cuDNN's flags that a configuration may do otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from profiler_kit.records.target import TargetInfo, TargetSpec

if TYPE_CHECKING:
    import torch

ON: Final = "on"  # the value of a switch
EVERYWHERE: Final = frozenset({"cuda", "cpu", "mps"})


def switch(value: str) -> str:
    """The value of an axis that is only on or not there. Raises ValueError for any other."""
    if value != ON:
        raise ValueError("it takes no value")
    return ON


def nowhere(value: str, device: str, info: TargetInfo | None) -> str | None:
    """No reason against it anywhere."""
    return None


class StepControls(Protocol):
    """What an axis may change of a step: the worker's runner, after the target is built and before the first step.

    `reads_loss`: a step reads the loss, which waits for the device. `unseen` says why what runs can't be watched op by op
    (None: it can). `memory_apart`: CUDA graphs hold memory that no allocation shows. `notes` are sentences for the report.
    """

    reads_loss: bool
    unseen: str | None
    memory_apart: bool
    notes: list[str]

    @property
    def device(self) -> torch.device:
        """The device that the target is on."""

    @property
    def info(self) -> TargetInfo:
        """What the target resolved to."""

    @property
    def runs(self) -> torch.nn.Module:
        """The module that a step calls."""

    def run_as(self, runs: torch.nn.Module) -> None:
        """Has a step call `runs`, which computes what the target's model does."""

    def checkpoint(self, paths: Sequence[str]) -> None:
        """Has the modules at `paths` compute their insides again in backward. Raises UsageError for a wrong path."""

    def capture_graphs(self) -> None:
        """Has forward and backward replayed as CUDA graphs, which the first step captures."""

    def fuse_optimizer(self) -> None:
        """Replaces the optimizer, where there is one, by its fused form. Raises TargetError where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One entry of `AXES` in a file of `configurations/axes/`.

    `name` is how it is written (``channels_last``, ``batch=2x``), `values` what stands behind ``=`` ("" for a switch), `bare`
    the value that the name alone stands for ("": it needs one). `doc` is one line for people. `devices` are the kinds of
    device it means something on. `flag` is the flag of cuDNN without which it means nothing, and which it brings along;
    `excludes` are axes that it can't stand beside; `several`: it may come more than once in a name, and every value holds.

    `read` gives a value as it is kept, or raises ValueError that says what is wrong with it. `pointless` says why a value
    would change nothing on a device (``cuda``, ``cpu``, ``mps``) for a target (None: not known), or None.

    What it does, in the worker, each part where it is given: `process` sets up the process, before the target is loaded and
    once more after that, as a model's file may set the same; `spec` changes how the target is built; `runner` changes what a
    step does, after the target has been built and before the first step. Each is called with the value (that of an axis
    that came several times: its values with commas between), and may raise a KitError that says why it can't be done. They
    are done in the order of the axes' names.
    """

    name: str
    doc: str
    devices: frozenset[str]
    values: str = ""
    bare: str = ON
    flag: str = ""
    excludes: frozenset[str] = frozenset()
    several: bool = False
    read: Callable[[str], str] = switch
    pointless: Callable[[str, str, TargetInfo | None], str | None] = nowhere
    process: Callable[[str, str], None] | None = None
    spec: Callable[[str, TargetSpec], TargetSpec] | None = None
    runner: Callable[[str, StepControls], None] | None = None

"""What an axis is: something beside cuDNN's flags that a configuration may do otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from profiler_kit.records.target import TargetInfo, TargetSpec

if TYPE_CHECKING:
    from profiler_kit.measure.steps import Runner

ON: Final = "on"  # the value of a switch


def switch(value: str) -> str:
    """The value of an axis that is only on or not there. Raises ValueError for any other."""
    if value != ON:
        raise ValueError("it takes no value")
    return ON


def nowhere(device: str, info: TargetInfo | None) -> str | None:
    """No reason against it anywhere."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One entry of `AXES` in a file of `measure/axes/`.

    `name` is how it is written (``channels_last``, ``batch=2x``), `values` what stands behind ``=`` ("" for a switch), `bare`
    the value that the name alone stands for ("": it needs one). `doc` is one line for people. `devices` are the kinds of
    device it means something on.

    `read` gives a value as it is kept, or raises ValueError that says what is wrong with it. `pointless` says why it would
    change nothing on a device (``cuda``, ``cpu``, ``mps``) for a target (None: not known), or None.

    What it does, in the worker, each part where it is given: `process` sets up the process before the target is loaded;
    `spec` changes how the target is built; `runner` changes what a step does, after the target has been built and before the
    first step. Each is called with the value, and may raise a KitError that says why it can't be done.
    """

    name: str
    doc: str
    devices: frozenset[str]
    values: str = ""
    bare: str = ON
    read: Callable[[str], str] = switch
    pointless: Callable[[str, TargetInfo | None], str | None] = nowhere
    process: Callable[[str, str], None] | None = None
    spec: Callable[[str, TargetSpec], TargetSpec] | None = None
    runner: Callable[[str, Runner], None] | None = None

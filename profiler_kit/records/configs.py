"""What a run is given: the configuration it runs under, and the place it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The library that runs convolutions; ``native``: torch's own kernels.
Backend = Literal["cudnn", "miopen", "native", "mps", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedValue:
    """A name and its value as text, where a dict would stand."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One configuration: cuDNN's flags, and what else is different. A flag is None where the device has no such choice.

    `settings` are further axes by name (``channels_last``, ``compile``, ``batch``, ``memory_limit`` …), each with its value
    as text, in the order of their names; a switch that is on has the value ``on``. `repeat_of` names the configuration of
    which this run is a second, fresh-process repetition (the A/A run).
    """

    name: str
    enabled: bool | None = None
    benchmark: bool | None = None
    deterministic: bool | None = None
    allow_tf32: bool | None = None
    settings: tuple[NamedValue, ...] = ()
    repeat_of: str | None = None

    def setting(self, name: str) -> str | None:
        """The value of the axis called `name`, or None where this configuration leaves it alone."""
        return next((item.value for item in self.settings if item.name == name), None)

    @property
    def flags(self) -> tuple[bool | None, ...]:
        """The values of cuDNN's flags."""
        return (self.enabled, self.benchmark, self.deterministic, self.allow_tf32)

    @property
    def is_plain(self) -> bool:
        """Whether nothing but cuDNN's own flags differs."""
        return not self.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the run ran on. `flags` are read back from torch once the configuration was set; `variables` are those that matter."""

    device: str
    device_name: str
    torch: str
    python: str
    platform: str
    cuda: str | None = None
    cudnn: str | None = None
    device_memory_bytes: int | None = None
    capability: str | None = None
    threads: int | None = None
    flags: tuple[NamedValue, ...] = ()
    variables: tuple[NamedValue, ...] = ()

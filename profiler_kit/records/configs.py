"""The configuration of a run, and the environment it ran in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The library that runs convolutions; ``native`` means torch's own kernels.
Backend = Literal["cudnn", "miopen", "native", "mps", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedValue:
    """A name and its value as text. Records use tuples of these where other code would use a dict."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A configuration: cuDNN's flags and further settings. A flag is None on devices that do not have it.

    - `settings`: further axes by name (``channels_last``, ``compile``, ``batch``, ``memory_limit`` …) with their values as
      text, sorted by name. A switch has the value ``on``.
    - `repeat_of`: the name of the configuration that this run repeats in a second process (the A/A run); None for other runs.
    """

    name: str
    enabled: bool | None = None
    benchmark: bool | None = None
    deterministic: bool | None = None
    allow_tf32: bool | None = None
    settings: tuple[NamedValue, ...] = ()
    repeat_of: str | None = None

    def setting(self, name: str) -> str | None:
        """The value of the axis `name`; None where the configuration does not set it."""
        return next((item.value for item in self.settings if item.name == name), None)

    @property
    def flags(self) -> tuple[bool | None, ...]:
        """The values of cuDNN's flags."""
        return (self.enabled, self.benchmark, self.deterministic, self.allow_tf32)

    @property
    def is_plain(self) -> bool:
        """Whether the configuration sets cuDNN's flags only."""
        return not self.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and the software of a run. A field is None where it does not apply or cannot be read.

    - `capability`: the CUDA compute capability.
    - `threads`: the threads that torch uses on the CPU. `cores`: the cores that the process may use.
    - `flags`: the flags as read from torch after the configuration was applied.
    - `variables`: the environment variables that affect performance or arithmetic.
    """

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
    cores: int | None = None
    flags: tuple[NamedValue, ...] = ()
    variables: tuple[NamedValue, ...] = ()

"""What a machine is for the tool: its devices, what they reach, and what is installed."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.ceilings import Ceilings
from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.report import Tool
from profiler_kit.records.roofline import Roof
from profiler_kit.records.saved import Saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device torch sees: its name for ``--device``, torch's name for it, its memory and compute capability."""

    id: str
    name: str
    memory_bytes: int | None = None
    capability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that something here can use: the installed version (None: not installed), and what it is for."""

    name: str
    version: str | None
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Saved, kind="machine"):
    """One machine as `env` finds it. `environment` is of the device that ``auto`` or ``--device`` means; None without torch.

    `cores`: those the process may run on. `simd`: the vector instructions torch uses on the CPU. `configs`: the cuDNN
    configurations that mean something on the device; `config_notes` say why the others don't. `roofs`: what the device
    reaches at most, measured and by its datasheet, where known. `cache`: the folder of the kept ceilings.
    """

    tool: Tool
    created: str
    python: str
    platform: str
    cores: int
    environment: Environment | None = None
    driver: str | None = None
    torch_cuda: str | None = None
    simd: str | None = None
    devices: tuple[Device, ...] = ()
    configs: tuple[RunConfig, ...] = ()
    config_notes: tuple[str, ...] = ()
    ceilings: Ceilings | None = None
    roofs: tuple[Roof, ...] = ()
    cache: str | None = None
    packages: tuple[Package, ...] = ()
    notes: tuple[str, ...] = ()

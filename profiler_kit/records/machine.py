"""The record of `env`: devices, measured peaks and installed versions."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.ceilings import Ceilings
from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.report import Tool
from profiler_kit.records.roofline import Roof
from profiler_kit.records.saved import Saved
from profiler_kit.records.views import Views


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that torch reports: its name for ``--device``, torch's name for it, its memory and compute capability."""

    id: str
    name: str
    memory_bytes: int | None = None
    capability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An optional package: the installed version (None: not installed) and its purpose."""

    name: str
    version: str | None
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Views, Saved, kind="machine"):
    """One machine as reported by `env`.

    - `cores`: the cores that the process may use.
    - `environment`: the device that ``auto`` or ``--device`` selects; None without torch.
    - `driver`: the NVIDIA driver's version. `torch_cuda`: the CUDA version that torch was built for.
    - `simd`: the vector instructions that torch uses on the CPU.
    - `configs`: the cuDNN configurations that apply to the device. `config_notes`: why the others do not apply.
    - `ceilings`: the measured peaks; None where not measured. `roofs`: measured and datasheet peaks.
    - `cache`: the folder of the cached peaks.
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

    def __repr__(self) -> str:
        devices = ", ".join(device.name for device in self.devices) or "no device of torch"
        return f"<Machine {self.platform}: {devices}>"

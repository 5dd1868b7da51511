"""The record of `env`: devices, their measured peaks (FLOP/s of matrix products, bytes/s of a copy) and installed versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.report import Tool
from profiler_kit.records.roofline import Roof
from profiler_kit.records.saved import Saved
from profiler_kit.records.views import Views

# A ceiling that varies more than this was measured while something else used the device: on an idle one it is under 1 %.
MAX_SPREAD_PERCENT: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MathRate:
    """The median FLOP/s of a square matrix product in one arithmetic.

    - `math`: the arithmetic, `fp32`, `tf32`, `f16` or `bf16`.
    - `size`: the number of rows and columns of the matrices.
    - `repeats`: the number of timed products.
    - `spread_percent`: half the width of the 95 % interval, in percent of the median.
    """

    math: str
    flops_per_s: float
    size: int
    repeats: int
    spread_percent: float

    @property
    def steady(self) -> bool:
        """Whether the rate varied little enough to serve as a peak."""
        return self.spread_percent <= MAX_SPREAD_PERCENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings(Saved, kind="ceilings"):
    """The measured peaks of a device.

    - `device`, `device_name`: the device type (`cuda`, `cpu`) and the name that torch reports.
    - `torch`, `driver`: versions; `driver` is None on a CPU and where it cannot be read.
    - `threads`: the threads that torch used on a CPU; None on other devices.
    - `rates`: FLOP/s of large matrix products, one entry per arithmetic that could be measured.
    - `bandwidth_bytes_per_s`: bytes read and written per second by a copy on the device; None where the copy failed.
    - `copy_bytes`: the size of the copied tensor.
    - `bandwidth_spread_percent`: half the width of the 95 % interval, in percent of the median.
    - `duration_ns`: the duration of all measurements.
    - `notes`: the measurements that failed, and why.
    """

    device: str
    device_name: str
    torch: str
    driver: str | None
    threads: int | None
    rates: tuple[MathRate, ...]
    bandwidth_bytes_per_s: float | None
    copy_bytes: int
    bandwidth_spread_percent: float | None
    duration_ns: int
    notes: tuple[str, ...] = ()

    @property
    def largest_spread_percent(self) -> float:
        """The largest spread among the rates and the bandwidth."""
        return max([self.bandwidth_spread_percent or 0.0, *(rate.spread_percent for rate in self.rates)])

    @property
    def steady(self) -> bool:
        """Whether all figures varied little enough to serve as peaks."""
        return self.largest_spread_percent <= MAX_SPREAD_PERCENT


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
    - `host_factor`: how many times as long as on the reference host of forecasts eager PyTorch takes per op; None where not
      measured.
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
    host_factor: float | None = None
    packages: tuple[Package, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        devices = ", ".join(device.name for device in self.devices) or "no device of torch"
        return f"<Machine {self.platform}: {devices}>"

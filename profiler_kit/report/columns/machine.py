"""The columns of the machine: what it reaches, its devices, their configurations, what is installed."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.machine import Device, Package
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.values import share


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingRow:
    """What one device reaches in one respect, beside its datasheet: FLOP/s of a matrix product, or bytes/s of a copy."""

    what: str
    rows: int | None = None
    copied_bytes: int | None = None
    flops_per_s: float | None = None
    sheet_flops_per_s: float | None = None
    bytes_per_s: float | None = None
    sheet_bytes_per_s: float | None = None
    spread_percent: float | None = None


# fmt: off
# ruff: noqa: E501 - one column, one line
CEILING_COLUMNS: tuple[Column[CeilingRow], ...] = (
    Column("what", "what", "text", lambda r: r.what, "the arithmetic of a square matrix product, or a copy within the device's memory"),
    Column("rows", "matrix rows", "count", lambda r: r.rows, "rows and columns of the matrices: the size that was fastest", rank=1),
    Column("copied_bytes", "copied", "bytes", lambda r: r.copied_bytes, "bytes copied, far beyond any cache", rank=2),
    Column("flops_per_s", "FLOP/s", "flops/s", lambda r: r.flops_per_s, "median FLOP/s reached"),
    Column("sheet_flops_per_s", "datasheet FLOP/s", "flops/s", lambda r: r.sheet_flops_per_s, "the datasheet's peak, dense"),
    Column("bytes_per_s", "bytes/s", "bytes/s", lambda r: r.bytes_per_s, "median of bytes read and written per second"),
    Column("sheet_bytes_per_s", "datasheet bytes/s", "bytes/s", lambda r: r.sheet_bytes_per_s, "the datasheet's memory bandwidth"),
    Column("reached_percent", "reached %", "percent", lambda r: share(r.flops_per_s, r.sheet_flops_per_s) if r.bytes_per_s is None else share(r.bytes_per_s, r.sheet_bytes_per_s), "measured in percent of the datasheet's"),
    Column("spread", "CI ± %", "percent", lambda r: r.spread_percent, "half the median's 95 % interval, in percent of it: the noise of this machine"),
)

DEVICE_COLUMNS: tuple[Column[Device], ...] = (
    Column("device", "--device", "text", lambda d: d.id, "what --device calls it"),
    Column("name", "name", "text", lambda d: d.name, "what torch calls it", name=True),
    Column("memory_bytes", "memory", "bytes", lambda d: d.memory_bytes, "its memory in all"),
    Column("capability", "capability", "text", lambda d: d.capability, "CUDA compute capability"),
)

CONFIG_COLUMNS: tuple[Column[RunConfig], ...] = (
    Column("config", "configuration", "text", lambda c: c.name, "its name for --configs", name=True),
    Column("enabled", "enabled", "bool", lambda c: c.enabled, "cudnn.enabled"),
    Column("benchmark", "benchmark", "bool", lambda c: c.benchmark, "cudnn.benchmark"),
    Column("deterministic", "deterministic", "bool", lambda c: c.deterministic, "cudnn.deterministic"),
    Column("allow_tf32", "TF32", "bool", lambda c: c.allow_tf32, "cudnn.allow_tf32"),
)

PACKAGE_COLUMNS: tuple[Column[Package], ...] = (
    Column("package", "package", "text", lambda p: p.name, "its name"),
    Column("version", "version", "text", lambda p: p.version, "the installed version; a dash where it is not installed"),
    Column("purpose", "needed for", "text", lambda p: p.purpose, "what the tool does with it"),
)

TABLES = (
    ColumnTable("ceilings", CEILING_COLUMNS, "What the device was measured to reach, beside its datasheet (`env`)."),
    ColumnTable("devices", DEVICE_COLUMNS, "The devices that torch sees (`env`)."),
    ColumnTable("configurations", CONFIG_COLUMNS, "The cuDNN configurations that mean something on the device (`env`)."),
    ColumnTable("packages", PACKAGE_COLUMNS, "What is installed (`env`)."),
)
# fmt: on

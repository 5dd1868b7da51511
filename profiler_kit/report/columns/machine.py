"""The columns of the machine: measured peaks, devices, configurations, packages."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.machine import Device, Package
from profiler_kit.report.columns.column import Column, ColumnTable, share


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingRow:
    """One measured peak of a device and its datasheet value: FLOP/s of a matrix product, or bytes/s of a copy."""

    test: str
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
    Column("what", "test", "text", lambda r: r.test, "the arithmetic of a square matrix product, or a copy within device memory"),
    Column("rows", "matrix size", "count", lambda r: r.rows, "rows and columns of the square matrices; the fastest tested size", rank=1),
    Column("copied_bytes", "copied", "bytes", lambda r: r.copied_bytes, "bytes copied, much more than any cache holds", rank=2),
    Column("flops_per_s", "FLOP/s", "flops/s", lambda r: r.flops_per_s, "measured median FLOP/s"),
    Column("sheet_flops_per_s", "datasheet FLOP/s", "flops/s", lambda r: r.sheet_flops_per_s, "peak FLOP/s of the datasheet, without sparsity"),
    Column("bytes_per_s", "bytes/s", "bytes/s", lambda r: r.bytes_per_s, "measured median of bytes read and written per second"),
    Column("sheet_bytes_per_s", "datasheet bytes/s", "bytes/s", lambda r: r.sheet_bytes_per_s, "memory bandwidth of the datasheet"),
    Column("reached_percent", "% of datasheet", "percent", lambda r: share(r.flops_per_s, r.sheet_flops_per_s) if r.bytes_per_s is None else share(r.bytes_per_s, r.sheet_bytes_per_s), "measured value as a percentage of the datasheet's"),
    Column("spread", "CI ± %", "percent", lambda r: r.spread_percent, "half the width of the median's 95 % confidence interval, as a percentage of the median"),
)

DEVICE_COLUMNS: tuple[Column[Device], ...] = (
    Column("device", "--device", "text", lambda d: d.id, "name of the device for --device"),
    Column("name", "name", "text", lambda d: d.name, "name of the device in torch", name=True),
    Column("memory_bytes", "memory", "bytes", lambda d: d.memory_bytes, "total device memory"),
    Column("capability", "capability", "text", lambda d: d.capability, "CUDA compute capability"),
)

CONFIG_COLUMNS: tuple[Column[RunConfig], ...] = (
    Column("config", "configuration", "text", lambda c: c.name, "name of the configuration for --configs", name=True),
    Column("enabled", "enabled", "bool", lambda c: c.enabled, "cudnn.enabled"),
    Column("benchmark", "benchmark", "bool", lambda c: c.benchmark, "cudnn.benchmark"),
    Column("deterministic", "deterministic", "bool", lambda c: c.deterministic, "cudnn.deterministic"),
    Column("allow_tf32", "TF32", "bool", lambda c: c.allow_tf32, "cudnn.allow_tf32"),
)

PACKAGE_COLUMNS: tuple[Column[Package], ...] = (
    Column("package", "package", "text", lambda p: p.name, "name of the package"),
    Column("version", "version", "text", lambda p: p.version, "installed version; a dash where the package is missing"),
    Column("purpose", "needed for", "text", lambda p: p.purpose, "what profiler_kit uses the package for"),
)

TABLES = (
    ColumnTable("ceilings", CEILING_COLUMNS, "Measured peaks of the device, with the datasheet values (`env`)."),
    ColumnTable("devices", DEVICE_COLUMNS, "The devices that torch sees (`env`)."),
    ColumnTable("configurations", CONFIG_COLUMNS, "The cuDNN configurations that apply to the device (`env`)."),
    ColumnTable("packages", PACKAGE_COLUMNS, "Installed packages (`env`)."),
)
# fmt: on

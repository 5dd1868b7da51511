"""The columns of convolutions, and of their changes between configurations."""

from __future__ import annotations

from collections.abc import Callable

from profiler_kit.records.document import Value
from profiler_kit.records.experiments import ConvolutionTiming
from profiler_kit.records.families import family_name, math_name
from profiler_kit.report.columns.column import Column, ColumnTable, share
from profiler_kit.report.convolution_rows import ChangeRow, ConvolutionRow, algorithm_words


def _part(figure: Callable[[ConvolutionTiming], Value]) -> Callable[[ConvolutionRow], Value]:
    return lambda row: figure(row.timing) if row.timing else None


def _rate_share(row: ConvolutionRow) -> float | None:
    return share(row.timing.flops_per_s, row.peak_flops_per_s) if row.timing else None


# fmt: off
# ruff: noqa: E501 - one column, one line
CONVOLUTION_COLUMNS: tuple[Column[ConvolutionRow], ...] = (
    Column("config", "configuration", "text", lambda r: r.config, "name of the configuration", place="data"),
    Column("layer", "layer", "text", lambda r: r.label, "the module that calls the convolution", place="page", name=True),
    Column("path", "path", "text", _part(lambda t: t.path), "the module's path as in named_modules(); empty for the root module", place="data"),
    Column("part", "part", "text", _part(lambda t: t.part), "fprop: forward; dgrad: gradient of the input; wgrad: gradient of the weight"),
    Column("algorithm", "algorithm", "text", _part(lambda t: family_name(t.family)), "the algorithm family of the kernels with the most time, layout conversion excluded", place="page", rank=1),
    Column("arithmetic", "arithmetic", "text", _part(lambda t: math_name(t.math) if t.math else None), "number format of the multiplications, read from the kernels' names, not from the flags", place="page", rank=1),
    Column("family", "kernel family", "text", _part(lambda t: t.family), "the same algorithm as in `kernels`", place="data"),
    Column("math", "math", "text", _part(lambda t: t.math), "the same arithmetic as in `kernels`", place="data"),
    Column("tensor_core", "tensor cores", "bool", _part(lambda t: t.tensor_core), "whether a kernel's name says that it uses tensor cores", place="data"),
    Column("kernel", "kernel", "text", _part(lambda t: t.kernel), "the kernel with the most time, layout conversion excluded", place="data", name=True),
    Column("calls", "calls", "count", _part(lambda t: t.calls), "calls per step, recomputed forward work included", place="data"),
    Column("kernel_ns", "time", "ns", lambda r: r.kernel_ns, "device time per step of all kernels of this part"),
    Column("kernel_share_percent", "time %", "percent", lambda r: share(r.kernel_ns, r.total_ns), "share of the device time of all convolutions", rank=4, share=True),
    Column("layout_ns", "layout time", "ns", lambda r: r.layout_ns, "part of the time that only converts between NCHW and NHWC", rank=2),
    Column("macs", "MACs", "macs", _part(lambda t: t.macs), "multiply-accumulates of this part; empty where the module has other matrix products too", place="data"),
    Column("flops_per_s", "FLOP/s", "flops/s", _part(lambda t: t.flops_per_s), "effective rate: 2 FLOPs per MAC, divided by the time"),
    Column("peak_flops_per_s", "peak FLOP/s", "flops/s", lambda r: r.peak_flops_per_s, "the roofline's peak for this arithmetic", place="data"),
    Column("peak_percent", "% of peak", "percent", _rate_share, "effective rate as a percentage of the roofline's peak for this arithmetic; over 100 where the algorithm does fewer operations than counted (FFT, Winograd)", rank=1),
    Column("floor_ns", "floor", "ns", lambda r: r.floor_ns, "shortest possible time by the roofline: MACs at the peak, or each operand moved once at the bandwidth, whichever is longer", place="data"),
    Column("attained_percent", "% of roofline", "percent", lambda r: share(r.floor_ns, r.kernel_ns), "shortest possible time by the roofline divided by the measured time", rank=3),
    Column("workspace_bytes", "workspace", "bytes", _part(lambda t: t.workspace_bytes), "largest memory that a call allocated beyond its inputs and outputs", rank=2),
    Column("executed_ratio", "executed", "ratio", lambda r: r.executed_ratio, "operations executed (hardware counters) divided by 2 per MAC; above 1: tiles are padded; below 1: the algorithm saves operations (FFT, Winograd)", rank=1),
    Column("executed_flops", "executed FLOPs", "flops", _part(lambda t: t.counters.flops if t.counters else None), "operations executed, from hardware counters", place="data"),
    Column("dram_bytes", "DRAM", "bytes", _part(lambda t: t.counters.dram_bytes if t.counters else None), "bytes read from and written to device memory, from hardware counters", rank=2),
)

CHANGE_COLUMNS: tuple[Column[ChangeRow], ...] = (
    Column("layer", "layer", "text", lambda r: r.label, "the module that calls the convolution", name=True),
    Column("part", "part", "text", lambda r: r.before.part, "fprop: forward; dgrad: gradient of the input; wgrad: gradient of the weight"),
    Column("from", "baseline", "text", lambda r: r.baseline, "the baseline configuration", rank=3),
    Column("to", "configuration", "text", lambda r: r.config, "the configuration compared with the baseline", name=True),
    Column("differs", "difference", "text", lambda r: r.differs, "the first difference in this order: algorithm, arithmetic, kernel (with its time), time alone", rank=4),
    Column("before", "algorithm before", "text", lambda r: algorithm_words(r.before), "algorithm and arithmetic in the baseline", rank=1),
    Column("before_ns", "before", "ns", lambda r: r.before.kernel_ns, "device time per step in the baseline"),
    Column("after", "algorithm after", "text", lambda r: algorithm_words(r.after), "algorithm and arithmetic in the other configuration", rank=1),
    Column("after_ns", "after", "ns", lambda r: r.after.kernel_ns, "device time per step in the other configuration"),
    Column("ratio", "ratio", "ratio", lambda r: r.after.kernel_ns / r.before.kernel_ns if r.before.kernel_ns else None, "time in the other configuration divided by the baseline time", rank=2),
    Column("before_workspace_bytes", "workspace before", "bytes", lambda r: r.before.workspace_bytes, "workspace in the baseline", rank=5),
    Column("after_workspace_bytes", "workspace after", "bytes", lambda r: r.after.workspace_bytes, "workspace in the other configuration", rank=5),
)

TABLES = (
    ColumnTable("convolutions", CONVOLUTION_COLUMNS, "One row per run and part of a convolution, with its algorithm ([algorithm names](algorithms.md)). Pages show one run."),
    ColumnTable("convolution_changes", CHANGE_COLUMNS, "One row per part of a convolution that differs from the baseline in another configuration: by algorithm, by arithmetic, or by more than 5 % of its time and at least 0.5 % of the time of all convolutions."),
)
# fmt: on

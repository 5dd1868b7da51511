"""The columns of how convolutions were done, and of what another configuration changes about it."""

from __future__ import annotations

from collections.abc import Callable

from profiler_kit.records.document import Value
from profiler_kit.records.families import family_words, math_words
from profiler_kit.records.laboratory import ConvolutionTiming
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.values import share
from profiler_kit.report.convolution_rows import ChangeRow, ConvolutionRow, algorithm_words


def _part(figure: Callable[[ConvolutionTiming], Value]) -> Callable[[ConvolutionRow], Value]:
    return lambda row: figure(row.timing) if row.timing else None


def _rate_share(row: ConvolutionRow) -> float | None:
    return share(row.timing.flops_per_s, row.peak_flops_per_s) if row.timing else None


# fmt: off
# ruff: noqa: E501 - one column, one line
CONVOLUTION_COLUMNS: tuple[Column[ConvolutionRow], ...] = (
    Column("config", "configuration", "text", lambda r: r.config, "the configuration's name", place="data"),
    Column("layer", "layer", "text", lambda r: r.label, "the module that the convolution is of", place="page", name=True),
    Column("path", "path", "text", _part(lambda t: t.path), "the module's path as named_modules() gives it, the root's is empty", place="data"),
    Column("part", "part", "text", _part(lambda t: t.part), "fprop: forward; dgrad: the gradient by the input; wgrad: by the weight"),
    Column("algorithm", "algorithm", "text", _part(lambda t: family_words(t.family)), "how it was done: the kernels that take most of the time beside layout conversion", place="page", rank=1),
    Column("arithmetic", "arithmetic", "text", _part(lambda t: math_words(t.math) if t.math else None), "what its kernels multiply in, by their names; not by the flags", place="page", rank=1),
    Column("family", "kernel family", "text", _part(lambda t: t.family), "the same algorithm, as `kernels` calls it", place="data"),
    Column("math", "math", "text", _part(lambda t: t.math), "the same arithmetic, as `kernels` calls it", place="data"),
    Column("tensor_core", "tensor cores", "bool", _part(lambda t: t.tensor_core), "a kernel's name says that it runs on tensor cores", place="data"),
    Column("kernel", "kernel", "text", _part(lambda t: t.kernel), "the longest of these kernels", place="data", name=True),
    Column("calls", "calls", "count", _part(lambda t: t.calls), "calls in one step, forward work done again included", place="data"),
    Column("kernel_ns", "time", "ns", lambda r: r.kernel_ns, "device time per step of all that the part launches"),
    Column("kernel_share_percent", "time %", "percent", lambda r: share(r.kernel_ns, r.whole_ns), "share of the device time of all convolutions", rank=4),
    Column("layout_ns", "of it layout", "ns", lambda r: r.layout_ns, "the part of that time that only converts between NCHW and NHWC", rank=2),
    Column("macs", "MACs", "macs", _part(lambda t: t.macs), "multiply-accumulates that the part is asked for; unknown where its module has other products too", place="data"),
    Column("flops_per_s", "FLOP/s", "flops/s", _part(lambda t: t.flops_per_s), "two FLOPs per MAC asked for, divided by the time: the effective rate"),
    Column("peak_flops_per_s", "peak FLOP/s", "flops/s", lambda r: r.peak_flops_per_s, "what the device reaches in that arithmetic", place="data"),
    Column("peak_percent", "peak %", "percent", _rate_share, "the effective rate in percent of what the device reaches in that arithmetic: over 100 where an algorithm does less than is asked for (FFT, Winograd)", rank=1),
    Column("floor_ns", "floor", "ns", lambda r: r.floor_ns, "the least time under the roof: its MACs at that peak, or its operands, each moved once, at the bandwidth", place="data"),
    Column("attained_percent", "roof %", "percent", lambda r: share(r.floor_ns, r.kernel_ns), "that floor divided by the time", rank=3),
    Column("workspace_bytes", "workspace", "bytes", _part(lambda t: t.workspace_bytes), "the most that a call took beyond its inputs and outputs while it ran", rank=2),
    Column("executed_ratio", "executed", "ratio", lambda r: r.executed_ratio, "operations that hardware counters saw executed, over two per MAC asked for: above 1 tiles pad, below 1 the algorithm saves (FFT, Winograd)", rank=1),
    Column("executed_flops", "executed FLOPs", "flops", _part(lambda t: t.counters.flops if t.counters else None), "operations executed, by hardware counters", place="data"),
    Column("dram_bytes", "DRAM", "bytes", _part(lambda t: t.counters.dram_bytes if t.counters else None), "bytes read from and written to the device's memory, by hardware counters", rank=2),
)

CHANGE_COLUMNS: tuple[Column[ChangeRow], ...] = (
    Column("layer", "layer", "text", lambda r: r.label, "the module that the convolution is of", name=True),
    Column("part", "part", "text", lambda r: r.before.part, "fprop: forward; dgrad: the gradient by the input; wgrad: by the weight"),
    Column("from", "from", "text", lambda r: r.baseline, "the configuration that the others are compared with", rank=3),
    Column("to", "to", "text", lambda r: r.config, "the configuration compared with it", name=True),
    Column("differs", "differs", "text", lambda r: r.differs, "the first that differs of: algorithm, its arithmetic, the kernel (with its time), the time alone", rank=4),
    Column("before", "was", "text", lambda r: algorithm_words(r.before), "how the first configuration does it", rank=1),
    Column("before_ns", "took", "ns", lambda r: r.before.kernel_ns, "the device time there"),
    Column("after", "is", "text", lambda r: algorithm_words(r.after), "how the other does it", rank=1),
    Column("after_ns", "takes", "ns", lambda r: r.after.kernel_ns, "the device time there"),
    Column("ratio", "time x", "ratio", lambda r: r.after.kernel_ns / r.before.kernel_ns if r.before.kernel_ns else None, "the time there over the time before", rank=2),
    Column("before_workspace_bytes", "workspace was", "bytes", lambda r: r.before.workspace_bytes, "scratch in the first configuration", rank=5),
    Column("after_workspace_bytes", "workspace is", "bytes", lambda r: r.after.workspace_bytes, "scratch in the other", rank=5),
)

TABLES = (
    ColumnTable("convolutions", CONVOLUTION_COLUMNS, "How each part of each convolution was done, in each run ([what the words mean](algorithms.md)); on a page those of one run."),
    ColumnTable("convolution_changes", CHANGE_COLUMNS, "One row per part of a convolution that another configuration does in another way, or in another time: more than 5 % apart, and by at least 0.5 % of what all convolutions take."),
)
# fmt: on

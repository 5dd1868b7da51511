"""Nsight Compute's metrics: the selection for a device, and the parser of the resulting table.

Operations: an FMA counts as 2, an addition or multiplication as 1. Half-precision instructions hold two numbers and count
twice. `sm__ops_path_tensor_*` counts the operations of tensor cores, where a multiply-add is already 2: a TF32 kernel with
117,964,800 instructions of 16 x 8 x 8 multiply-adds reads 241,591,910,400.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from profiler_kit.records import marks
from profiler_kit.records.experiments import ConvolutionPart, KernelCounters

READ: Final = "dram__bytes_read"
WRITE: Final = "dram__bytes_write"
NEEDED: Final = (READ, WRITE)
_THREAD: Final = "smsp__sass_thread_inst_executed_op_{}_pred_on"
# Operations per instruction of a thread. Half-precision instructions operate on two numbers at once.
THREAD_FLOPS: Final[Mapping[str, int]] = {
    _THREAD.format(op): flops
    for op, flops in {
        "ffma": 2, "fadd": 1, "fmul": 1, "dfma": 2, "dadd": 1, "dmul": 1, "hfma": 4, "hadd": 2, "hmul": 2,
    }.items()
}  # fmt: skip
FP32: Final = tuple(_THREAD.format(op) for op in ("ffma", "fadd", "fmul"))

_TENSOR: Final = re.compile(r"\Asm__ops_path_tensor_src_(?P<source>bf16|fp16|fp8|fp64|tf32)(?P<to>_dst_[a-z0-9]+)?\Z")
# These show that tensor cores ran, but not how many operations: instructions differ in size.
_TENSOR_INSTRUCTIONS: Final = ("sm__inst_executed_pipe_tensor_op_hmma", "sm__inst_executed_pipe_tensor")
_NAME: Final = re.compile(r'\A\s*"?([a-z0-9]+__[A-Za-z0-9_]+)\b')

_RANGES: Final = "Push/Pop_Range"
_KERNEL: Final = "Kernel Name"
_NUMBER: Final = re.compile(r"\A(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?\Z")
_UNITS: Final = frozenset({"", "byte", "inst", "op", "ops", "flop", "flops"})
_MESSAGE_PREFIX: Final = "=="  # of ncu's messages, which appear between the table's lines
_ERROR: Final = re.compile(r"^==ERROR==\s*(.+?)\s*$", re.MULTILINE)


class UnreadableError(ValueError):
    """A table that is incomplete or not in Nsight Compute's format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The metrics to request.

    - `thread`: instructions of threads. `tensor`: operations of tensor cores.
    - `tensor_instructions`: instructions of tensor cores, requested where the device has no `tensor` metric.
    """

    thread: tuple[str, ...]
    tensor: tuple[str, ...]
    tensor_instructions: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """All metric names as passed to ncu, summed over the device."""
        more = (self.tensor_instructions,) if self.tensor_instructions is not None else ()
        return tuple(f"{name}.sum" for name in (*NEEDED, *self.thread, *self.tensor, *more))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One launch of a kernel: its counters, and the path and part of its convolution (None: not part of a convolution)."""

    path: str | None
    part: ConvolutionPart | None
    kernel: str
    counters: KernelCounters


def metric_names(query: str) -> frozenset[str]:
    """The base names of the metrics in the output of ``ncu --query-metrics``, as a table or as CSV."""
    return frozenset(name[1] for line in query.splitlines() if (name := _NAME.match(line)))


def select_metrics(available: Iterable[str]) -> Metrics | None:
    """The metrics in `available` that count operations and DRAM bytes; None if those for bytes or fp32 operations are missing."""
    names = frozenset(available)
    if not names.issuperset((*NEEDED, *FP32)):
        return None
    tensor = _tensor_metrics(names)
    fallback = None if tensor else next((name for name in _TENSOR_INSTRUCTIONS if name in names), None)
    return Metrics(
        thread=tuple(name for name in THREAD_FLOPS if name in names), tensor=tensor, tensor_instructions=fallback
    )


def _tensor_metrics(names: frozenset[str]) -> tuple[str, ...]:
    """One metric per source type, or several that do not overlap: ``src_fp16`` includes its ``_dst_`` variants."""
    by_source: dict[str, dict[str, str]] = {}
    for name in sorted(names):
        if match := _TENSOR.match(name):
            by_source.setdefault(match["source"], {})[match["to"] or ""] = name
    return tuple(
        name for parts in by_source.values() for name in ((parts[""],) if "" in parts else tuple(parts.values()))
    )


def error_messages(text: str) -> tuple[str, ...]:
    """The error messages that ncu wrote."""
    return tuple(line[1] for line in _ERROR.finditer(text))


def parse_table(text: str, metrics: Metrics) -> tuple[KernelRow, ...]:
    """The kernels in ncu's log: a header line, a line of units, then one line per kernel launch. Empty if the log has no table.

    Raises UnreadableError for a table without a required column, cell or number.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_MESSAGE_PREFIX)]
    try:
        table = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise UnreadableError(f"not CSV: {error}") from error
    if not table:
        return ()
    header, rows = table[0], table[1:]
    ranges = next((i for i, head in enumerate(header) if _RANGES in head and "Start/Stop" not in head), None)
    missing = [name for name in (_KERNEL, *metrics.names) if name not in header]
    if missing or ranges is None:
        raise UnreadableError(f"no column {missing[0] if missing else _RANGES}")
    if not rows:
        raise UnreadableError("no line after the header")
    if short := next((row for row in rows if len(row) != len(header)), None):
        raise UnreadableError(f"{len(short)} cells in a line of {len(header)} columns")
    units = dict(zip(header, rows[0], strict=True))
    if odd := next((units[name] for name in metrics.names if units[name].lower() not in _UNITS), None):
        raise UnreadableError(f"figures in {odd!r}")
    return tuple(_parse_row(dict(zip(header, row, strict=True)), row[ranges], metrics) for row in rows[1:])


def _parse_row(cells: Mapping[str, str], ranges: str, metrics: Metrics) -> KernelRow:
    def value(name: str) -> int:
        return _number(cells[f"{name}.sum"], name)

    instructions = value(metrics.tensor_instructions) if metrics.tensor_instructions is not None else 0
    # The user's ranges may enclose ours. Ours are never nested.
    part, path = marks.parse_counted_range(ranges) or (None, None)
    return KernelRow(
        path=path,
        part=part,
        kernel=cells[_KERNEL],
        counters=KernelCounters(
            flops=sum(THREAD_FLOPS[name] * value(name) for name in metrics.thread)
            + sum(value(name) for name in metrics.tensor),
            dram_read_bytes=value(READ),
            dram_write_bytes=value(WRITE),
            kernels=1,
            complete=instructions == 0,
        ),
    )


def _number(cell: str, name: str) -> int:
    if _NUMBER.match(cell) is None:
        raise UnreadableError(f"{cell!r} as the value of {name}")
    return round(float(cell.replace(",", "")))

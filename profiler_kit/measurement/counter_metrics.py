"""Nsight Compute's metrics: which to ask a device for, and what the table it writes says about each kernel.

Operations: an FMA is 2, an addition or a multiplication 1, and so for each of the two halves that a half-precision
instruction holds. `sm__ops_path_tensor_*` counts tensor cores' operations with a multiply-add as 2 already: a TF32 kernel of
117,964,800 instructions, each 16 x 8 x 8 multiply-adds, reads 241,591,910,400.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from profiler_kit.records import marks
from profiler_kit.records.laboratory import ConvolutionPart, KernelCounters

READ: Final = "dram__bytes_read"
WRITE: Final = "dram__bytes_write"
NEEDED: Final = (READ, WRITE)
_THREAD: Final = "smsp__sass_thread_inst_executed_op_{}_pred_on"
# Operations by instruction of a thread. Half-precision instructions work on two numbers at once, and are counted so.
THREAD_FLOPS: Final[Mapping[str, int]] = {
    _THREAD.format(op): flops
    for op, flops in {
        "ffma": 2, "fadd": 1, "fmul": 1, "dfma": 2, "dadd": 1, "dmul": 1, "hfma": 4, "hadd": 2, "hmul": 2,
    }.items()
}  # fmt: skip
FP32: Final = tuple(_THREAD.format(op) for op in ("ffma", "fadd", "fmul"))

_TENSOR: Final = re.compile(r"\Asm__ops_path_tensor_src_(?P<source>bf16|fp16|fp8|fp64|tf32)(?P<to>_dst_[a-z0-9]+)?\Z")
# Says only that tensor cores worked, not how much: instructions differ in size.
_TENSOR_INSTRUCTIONS: Final = ("sm__inst_executed_pipe_tensor_op_hmma", "sm__inst_executed_pipe_tensor")
_NAME: Final = re.compile(r'\A\s*"?([a-z0-9]+__[A-Za-z0-9_]+)\b')

_RANGES: Final = "Push/Pop_Range"
_KERNEL: Final = "Kernel Name"
_NUMBER: Final = re.compile(r"\A(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?\Z")
_UNITS: Final = frozenset({"", "byte", "inst", "op", "ops", "flop", "flops"})
_OWN_LINE: Final = "=="  # what begins ncu's own messages, between the table's lines
_ERROR: Final = re.compile(r"^==ERROR==\s*(.+?)\s*$", re.MULTILINE)


class UnreadableError(ValueError):
    """A table that is not what Nsight Compute writes, or not all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Metrics to ask for. `tensor`: those that count tensor cores' operations; `tensor_instructions`: asked for where none do."""

    thread: tuple[str, ...]
    tensor: tuple[str, ...]
    tensor_instructions: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, as ncu is asked: summed over the device."""
        more = (self.tensor_instructions,) if self.tensor_instructions is not None else ()
        return tuple(f"{name}.sum" for name in (*NEEDED, *self.thread, *self.tensor, *more))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One launch of a kernel: the convolution's path and part it ran for (None: for no convolution), and its counters."""

    path: str | None
    part: ConvolutionPart | None
    kernel: str
    counters: KernelCounters


def listed(query: str) -> frozenset[str]:
    """The metrics' base names in what ``ncu --query-metrics`` wrote, as a table or as CSV."""
    return frozenset(name[1] for line in query.splitlines() if (name := _NAME.match(line)))


def choose(there: Iterable[str]) -> Metrics | None:
    """The metrics among `there` that count operations and DRAM bytes; None where bytes or fp32 operations have none."""
    names = frozenset(there)
    if not names.issuperset((*NEEDED, *FP32)):
        return None
    tensor = _tensor(names)
    fallback = None if tensor else next((name for name in _TENSOR_INSTRUCTIONS if name in names), None)
    return Metrics(
        thread=tuple(name for name in THREAD_FLOPS if name in names), tensor=tensor, tensor_instructions=fallback
    )


def _tensor(names: frozenset[str]) -> tuple[str, ...]:
    """One metric per source type, or several that don't overlap: the whole of ``src_fp16`` has its ``_dst_`` parts in it."""
    by_source: dict[str, dict[str, str]] = {}
    for name in sorted(names):
        if match := _TENSOR.match(name):
            by_source.setdefault(match["source"], {})[match["to"] or ""] = name
    return tuple(
        name for parts in by_source.values() for name in ((parts[""],) if "" in parts else tuple(parts.values()))
    )


def errors(text: str) -> tuple[str, ...]:
    """What ncu said went wrong, in its own words."""
    return tuple(line[1] for line in _ERROR.finditer(text))


def read(text: str, metrics: Metrics) -> tuple[KernelRow, ...]:
    """Every kernel in the table that ncu wrote to its log: heads, units, then a line for each; empty where it has no table.

    Raises UnreadableError for a table that lacks a column, a cell or a number it should have.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_OWN_LINE)]
    try:
        table = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise UnreadableError(f"no CSV: {error}") from error
    if not table:
        return ()
    heads, rows = table[0], table[1:]
    ranges = next((i for i, head in enumerate(heads) if _RANGES in head and "Start/Stop" not in head), None)
    missing = [name for name in (_KERNEL, *metrics.names) if name not in heads]
    if missing or ranges is None:
        raise UnreadableError(f"no column {missing[0] if missing else _RANGES}")
    if not rows:
        raise UnreadableError("it ends after its heads")
    if short := next((row for row in rows if len(row) != len(heads)), None):
        raise UnreadableError(f"{len(short)} cells in a line of {len(heads)} columns")
    units = dict(zip(heads, rows[0], strict=True))
    if odd := next((units[name] for name in metrics.names if units[name].lower() not in _UNITS), None):
        raise UnreadableError(f"figures in {odd!r}")
    return tuple(_row(dict(zip(heads, row, strict=True)), row[ranges], metrics) for row in rows[1:])


def _row(cells: Mapping[str, str], ranges: str, metrics: Metrics) -> KernelRow:
    def value(name: str) -> int:
        return _number(cells[f"{name}.sum"], name)

    instructions = value(metrics.tensor_instructions) if metrics.tensor_instructions is not None else 0
    # Ranges of the user's own may stand around ours; ours never stand in one another.
    part, path = marks.counted_range_in(ranges) or (None, None)
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

"""Time by module and phase, with the kernels of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import innermost_enclosing
from profiler_kit.attribution.phase_times import Work
from profiler_kit.attribution.result import Attribution, phase_name
from profiler_kit.records.traces import TRACE_PHASES, KernelStat, TraceModule
from profiler_kit.traces.intervals import sum_by
from profiler_kit.traces.kernels import ConvolutionOp, classify, convolution_op
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints

CONVOLUTION_OPS: Final[tuple[ConvolutionOp | None, ...]] = ("fprop", "dgrad", "both gradients", None)
_NO_CONVOLUTION: Final = np.int8(3)


class ModuleTimes(NamedTuple):
    """The time by module and phase in the order of the first work, and that without a phase, longest first."""

    modules: tuple[TraceModule, ...]
    unattributed: tuple[KernelStat, ...]


class _Cell(NamedTuple):
    """Work of one kernel in one module and phase; `module` and `phase` may be NONE."""

    first_row: int
    phase: int
    within: int
    module: int
    kernel: KernelStat


def module_times(attribution: Attribution, work: Work) -> ModuleTimes:
    """Return the time of `work` by module and phase, with its kernels. Collectives are split by the phase that launched them."""
    modules: list[tuple[int, TraceModule]] = []
    unattributed: list[KernelStat] = []
    for (phase, within, number), group in groupby(_cells(attribution, work), key=lambda cell: cell[1:4]):
        cells = list(group)
        kernels = _longest_first(cell.kernel for cell in cells)
        if phase == NONE:
            unattributed += kernels
            continue
        path, class_name = attribution.modules[number] if number != NONE else ("", "")
        module = TraceModule(
            path=path,
            class_name=class_name,
            phase=TRACE_PHASES[phase],
            kernel_ns=sum(kernel.kernel_ns for kernel in kernels),
            events=sum(kernel.calls for kernel in kernels),
            within=phase_name(within),
            kernels=kernels,
        )
        modules.append((min(cell.first_row for cell in cells), module))
    return ModuleTimes(
        tuple(module for _, module in sorted(modules, key=lambda item: item[0])), _longest_first(unattributed)
    )


def _longest_first(kernels: Iterable[KernelStat]) -> tuple[KernelStat, ...]:
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.kernel_ns, kernel.name)))


def _cells(attribution: Attribution, work: Work) -> Iterator[_Cell]:
    """Yield the cells of `work`, those of a module and phase one after another."""
    if not len(work.phase):
        return
    module = np.where(work.phase == NONE, NONE, work.module)
    within = np.where(work.phase == TRACE_PHASES.index("communication"), work.within, NONE)
    sizes = (len(TRACE_PHASES) + 1, len(TRACE_PHASES) + 1, len(attribution.modules) + 1, len(work.names))
    columns = (work.phase.astype(np.int64) + 1, within + 1, module + 1, work.name)
    cells, first, cell_of = np.unique(np.ravel_multi_index(columns, sizes), return_index=True, return_inverse=True)
    ns, calls = sum_by(cell_of, work.busy, len(cells)), np.bincount(cell_of, minlength=len(cells))
    convolution = _cell_convolutions(convolutions(attribution, work.launch), cell_of, len(cells))
    numbers = (column.tolist() for column in np.unravel_index(cells, sizes))
    for row, phase, launched, number, name, total_ns, count, kind in zip(
        first.tolist(), *numbers, ns.tolist(), calls.tolist(), convolution.tolist(), strict=True
    ):
        kernel = classify(work.names[name], CONVOLUTION_OPS[kind])
        stat = KernelStat(
            name=work.names[name],
            family=kernel.family,
            calls=count,
            kernel_ns=total_ns,
            op=kernel.op,
            math=kernel.math,
        )
        yield _Cell(row, phase - 1, launched - 1, number - 1, stat)


def _cell_convolutions(convolution: Bytes, cell_of: Ids | Ints, size: int) -> Bytes:
    """Return the operation of each cell, as an index of `CONVOLUTION_OPS`, where its work has a single one."""
    least, largest = np.full(size, _NO_CONVOLUTION), np.zeros(size, np.int8)
    np.minimum.at(least, cell_of, convolution)
    np.maximum.at(largest, cell_of, convolution)
    result: Bytes = np.where(least == largest, least, _NO_CONVOLUTION)
    return result


def convolutions(attribution: Attribution, position: Ids) -> Bytes:
    """Return the innermost convolution operator around each host position, as an index of `CONVOLUTION_OPS`."""
    table, host = attribution.table, attribution.host
    of_name = np.array([CONVOLUTION_OPS.index(convolution_op(name)) for name in table.names] or [0], np.int8)
    # Only operators count: marks and Python calls may have the same names.
    op = np.where(host.is_operator, of_name[table.name[host.rows]], _NO_CONVOLUTION)
    if not (op != _NO_CONVOLUTION).any():
        return np.full(len(position), _NO_CONVOLUTION)
    enclosing = np.append(innermost_enclosing(host.parent, op != _NO_CONVOLUTION), np.int32(NONE))[position]
    result: Bytes = np.where(enclosing != NONE, op[enclosing], _NO_CONVOLUTION)
    return result

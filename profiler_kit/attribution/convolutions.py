"""Convolution timings from the trace of a step in which each part of each convolution ran inside a mark of its own.

A kernel belongs to the part whose mark encloses its launch. Work launched outside these marks is not counted: the
gradient of the bias, and everything that is not a convolution.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.busy_time import busy_pieces
from profiler_kit.attribution.events import innermost_enclosing
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.run_figures import require_steps
from profiler_kit.records import marks
from profiler_kit.records.counts import ModuleNode, StaticCount
from profiler_kit.records.experiments import CONVOLUTION_PARTS, ConvolutionPart, ConvolutionTiming, PartWorkspace
from profiler_kit.records.families import LAYOUT, is_convolution, parent_algorithm
from profiler_kit.records.sums import apportion
from profiler_kit.traces.kernels import ConvolutionOp, KernelName, classify
from profiler_kit.traces.table import NONE, Ids, Kind

# The operation to assume for kernels whose names do not state one. A matrix product in a part does the convolution's
# work.
_PART_OPS: Final[Mapping[ConvolutionPart, ConvolutionOp]] = {
    "fprop": "fprop",
    "dgrad": "dgrad",
    "wgrad": "both gradients",
}
_PRODUCT_FAMILIES: Final = ("gemm", "gemm:complex")


class Part(NamedTuple):
    """One part (fprop, dgrad or wgrad) of the convolutions of one module."""

    path: str
    part: ConvolutionPart


class PartKernel(NamedTuple):
    """One kernel of one part: the key of the sums."""

    part: Part
    kernel: str


def convolution_timings(
    attribution: Attribution, workspaces: Iterable[PartWorkspace] = ()
) -> tuple[ConvolutionTiming, ...]:
    """Return one timing per part of each convolution, per step, in order of the first forward.

    `workspaces`: the measured workspace of each part. The result is empty if no convolution is marked, or none
    launched device work.

    Counts: each busy instant of a device once, also where kernels of several streams overlap.

    Raises: TraceError for a trace without a marked step.
    """
    require_steps(attribution)
    steps = len(attribution.steps)
    marked, parts = _marked_parts(attribution)
    times = apportion(_kernel_times(attribution, marked, parts), steps)
    workspace_bytes = {(workspace.path, workspace.part): workspace.bytes for workspace in workspaces}
    by_part: dict[Part, dict[str, int]] = defaultdict(dict)
    for part_kernel, ns in times.items():
        by_part[part_kernel.part][part_kernel.kernel] = ns
    start_ns = attribution.host.start_ns[marked]
    calls = Counter(parts[i] for i in np.argsort(start_ns, kind="stable").tolist())
    timings = [
        _timing(part, by_part[part], max(1, round(count / steps)), workspace_bytes.get((part.path, part.part)))
        for part, count in calls.items()
        if part in by_part
    ]
    order = {path: i for i, path in enumerate(dict.fromkeys(part.path for part in calls))}
    return tuple(sorted(timings, key=lambda timing: (order[timing.path], CONVOLUTION_PARTS.index(timing.part))))


def _marked_parts(attribution: Attribution) -> tuple[Ids, list[Part]]:
    """Return the host positions of the part marks, and the part of each."""
    table, host = attribution.table, attribution.host
    part_of_name = {
        i: Part(mark[1], mark[0])
        for i, name in enumerate(table.names)
        if (mark := marks.parse_convolution_mark(name)) is not None
    }
    names = table.name[host.rows]
    is_mark = np.isin(names, np.array(list(part_of_name), np.int32)) & (table.kind[host.rows] == Kind.ANNOTATION)
    marked = np.flatnonzero(is_mark).astype(np.int32)
    return marked, [part_of_name[name] for name in names[marked].tolist()]


def _kernel_times(attribution: Attribution, marked: Ids, parts: Sequence[Part]) -> dict[PartKernel, int]:
    """Return the ns of each kernel of each part over all steps. The innermost mark around a launch decides the part."""
    table, host, device = attribution.table, attribution.host, attribution.device
    is_mark = np.zeros(len(host.rows), np.bool_)
    is_mark[marked] = True
    enclosing_mark = np.append(innermost_enclosing(host.parent, is_mark), np.int32(NONE))[device.launch]
    times: dict[PartKernel, int] = defaultdict(int)
    pieces = busy_pieces(attribution, enclosing_mark != NONE)
    numbers = np.searchsorted(marked, enclosing_mark[pieces.position]).tolist()
    names = table.name[device.rows[pieces.position]].tolist()
    for number, name, ns in zip(numbers, names, (pieces.end - pieces.start).tolist(), strict=True):
        times[PartKernel(parts[number], table.names[name])] += ns
    return times


def _timing(part: Part, kernels: Mapping[str, int], calls: int, workspace_bytes: int | None) -> ConvolutionTiming:
    named = {name: classify(name, _PART_OPS[part.part]) for name in kernels}
    family, stages = _main_family(kernels, named)
    stated = [name for name in stages if named[name].math is not None]
    return ConvolutionTiming(
        path=part.path,
        part=part.part,
        calls=calls,
        kernel_ns=sum(kernels.values()),
        layout_ns=sum(ns for name, ns in kernels.items() if named[name].family == LAYOUT),
        family=family,
        kernel=stages[0],
        math=named[stated[0]].math if stated else None,
        tensor_core=any(named[name].tensor_core for name in stages),
        workspace_bytes=workspace_bytes,
    )


def _main_family(kernels: Mapping[str, int], named: Mapping[str, KernelName]) -> tuple[str, Sequence[str]]:
    """Return the kernel family that did the part's work, and its kernels, longest first.

    The family is the one with the most time among convolution families, else among matrix products, else among all.
    Adding a bias may take longer than a small convolution, but is not the convolution's algorithm.
    """
    present = {kernel.family for kernel in named.values()}
    groups: dict[str, list[str]] = defaultdict(list)
    for name in kernels:
        groups[parent_algorithm(named[name].family, present)].append(name)
    candidates = [family for family in groups if is_convolution(family)] or [
        f for f in groups if f in _PRODUCT_FAMILIES
    ]
    candidates = candidates or [family for family in groups if family != LAYOUT] or list(groups)
    family = max(sorted(candidates), key=lambda f: sum(kernels[name] for name in groups[f]))
    return family, sorted(groups[family], key=lambda name: (-kernels[name], name))


# ---- MACs from the static count


def with_macs(convolutions: Iterable[ConvolutionTiming], static: StaticCount | None) -> tuple[ConvolutionTiming, ...]:
    """Return `convolutions` with the MACs of each part, where the static count has them for the module.

    Each part of a call has as many MACs as the forward. If a module's forward runs again inside backward
    (recomputation), the MACs of the forward part include it. If some calls need only one gradient, a gradient's part
    gets the rest of the backward count. `macs` is None if the module is not a convolution (its MACs may include other
    products), or if the calls do not match the count.
    """
    timings = tuple(convolutions)
    nodes = {node.path: node for node in static.modules} if static is not None else {}
    calls = {Part(timing.path, timing.part): timing.calls for timing in timings}
    return tuple(replace(timing, macs=_macs(timing, nodes.get(timing.path), calls)) for timing in timings)


def _macs(timing: ConvolutionTiming, node: ModuleNode | None, calls: Mapping[Part, int]) -> int | None:
    sizes = node.layer_sizes if node is not None else None
    if node is None or not node.forward.macs or sizes is None or not sizes.kernel:
        return None
    if timing.calls == node.calls:
        return node.forward.macs
    if timing.part == "fprop":
        recomputed = node.recompute.macs if timing.calls > node.calls else 0
        return node.forward.macs + recomputed if recomputed else None
    other_part: ConvolutionPart = "wgrad" if timing.part == "dgrad" else "dgrad"
    other_calls = calls.get(Part(timing.path, other_part), 0)
    if other_calls not in (0, node.calls):
        return None
    remaining = node.backward.macs - (node.forward.macs if other_calls else 0)
    return remaining if remaining > 0 else None

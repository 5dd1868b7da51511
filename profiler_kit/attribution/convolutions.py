"""A trace of a step whose convolutions ran in marked parts -> how each part was done, and how long it took.

A kernel belongs to the part whose mark is around its launch. What is launched in no mark (the bias's gradient, all that is
no convolution) is not counted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.charges import charge_work
from profiler_kit.attribution.events import nearest
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.runs import require_steps
from profiler_kit.attribution.shares import apportion
from profiler_kit.records import marks
from profiler_kit.records.counts import ModuleNode, StaticCount
from profiler_kit.records.families import LAYOUT, is_convolution, stands_for
from profiler_kit.records.laboratory import CONVOLUTION_PARTS, ConvolutionPart, ConvolutionTiming, PartWorkspace
from profiler_kit.traces.kernels import ConvolutionOp, KernelName, classify
from profiler_kit.traces.table import NONE, Ids, Kind

# What a part's kernels are classified by where their name does not say: a matrix product in it is the convolution's.
_OP_OF_PART: Final[Mapping[ConvolutionPart, ConvolutionOp]] = {
    "fprop": "fprop",
    "dgrad": "dgrad",
    "wgrad": "both gradients",
}
_PRODUCTS: Final = ("gemm", "gemm:complex")
# How the count writes the config of any subclass of torch's convolutions: "30->50, k16, p7".
_CONVOLUTION_CONFIG: Final = re.compile(r"\A\d+->\d+, k\d")


class Part(NamedTuple):
    """One part of the convolutions that a module owns."""

    path: str
    part: ConvolutionPart


class Leaf(NamedTuple):
    """The finest thing added up: one kernel of one part."""

    of: Part
    kernel: str


def convolutions(attribution: Attribution, workspaces: Iterable[PartWorkspace] = ()) -> tuple[ConvolutionTiming, ...]:
    """How each part of each convolution in the trace was done, per step, in the order in which they first ran forward.

    `workspaces`: the scratch measured for them. Nothing where no convolution is marked, or none of them launched device work.

    Counts: each busy instant of a device once, also where kernels of several streams overlap.

    Raises: TraceError for a trace without a marked step.
    """
    require_steps(attribution)
    steps = len(attribution.steps)
    marked, parts = _marked_parts(attribution)
    times = apportion(_times(attribution, marked, parts), steps)
    scratch = {(workspace.path, workspace.part): workspace.bytes for workspace in workspaces}
    by_part: dict[Part, dict[str, int]] = defaultdict(dict)
    for leaf, ns in times.items():
        by_part[leaf.of][leaf.kernel] = ns
    begins = attribution.host.start_ns[marked]
    calls = Counter(parts[i] for i in np.argsort(begins, kind="stable").tolist())
    timings = [
        _timing(of, by_part[of], max(1, round(count / steps)), scratch.get((of.path, of.part)))
        for of, count in calls.items()
        if of in by_part
    ]
    order = {path: i for i, path in enumerate(dict.fromkeys(of.path for of in calls))}
    return tuple(sorted(timings, key=lambda timing: (order[timing.path], CONVOLUTION_PARTS.index(timing.part))))


def _marked_parts(attribution: Attribution) -> tuple[Ids, list[Part]]:
    """The host positions of the marks of parts, and the part that each is of."""
    table, host = attribution.table, attribution.host
    part_of_name = {
        i: Part(mark[1], mark[0])
        for i, name in enumerate(table.names)
        if (mark := marks.convolution_of(name)) is not None
    }
    names = table.name[host.rows]
    is_mark = np.isin(names, np.array(list(part_of_name), np.int32)) & (table.kind[host.rows] == Kind.ANNOTATION)
    marked = np.flatnonzero(is_mark).astype(np.int32)
    return marked, [part_of_name[name] for name in names[marked].tolist()]


def _times(attribution: Attribution, marked: Ids, parts: Sequence[Part]) -> dict[Leaf, int]:
    """ns of each kernel of each part over all steps: a kernel is of the part whose mark is the innermost around its launch."""
    table, host, device = attribution.table, attribution.host, attribution.device
    is_mark = np.zeros(len(host.rows), np.bool_)
    is_mark[marked] = True
    around = np.append(nearest(host.parent, is_mark), np.int32(NONE))[device.launch]
    leaves: dict[Leaf, int] = defaultdict(int)
    pieces = charge_work(attribution, around != NONE)
    numbers = np.searchsorted(marked, around[pieces.position]).tolist()
    names = table.name[device.rows[pieces.position]].tolist()
    for number, name, ns in zip(numbers, names, (pieces.end - pieces.start).tolist(), strict=True):
        leaves[Leaf(parts[number], table.names[name])] += ns
    return leaves


def _timing(of: Part, kernels: Mapping[str, int], calls: int, workspace_bytes: int | None) -> ConvolutionTiming:
    named = {name: classify(name, _OP_OF_PART[of.part]) for name in kernels}
    family, stages = _algorithm(kernels, named)
    stated = [name for name in stages if named[name].math is not None]
    return ConvolutionTiming(
        path=of.path,
        part=of.part,
        calls=calls,
        kernel_ns=sum(kernels.values()),
        layout_ns=sum(ns for name, ns in kernels.items() if named[name].family == LAYOUT),
        family=family,
        kernel=stages[0],
        math=named[stated[0]].math if stated else None,
        tensor_core=any(named[name].tensor_core for name in stages),
        workspace_bytes=workspace_bytes,
    )


def _algorithm(kernels: Mapping[str, int], named: Mapping[str, KernelName]) -> tuple[str, Sequence[str]]:
    """The family that did the part, and its kernels, longest first.

    It is the one with most time among those that convolve, else among matrix products, else among all: adding a bias may
    take longer than a small convolution and is not how it was done.
    """
    present = {said.family for said in named.values()}
    groups: dict[str, list[str]] = defaultdict(list)
    for name in kernels:
        groups[stands_for(named[name].family, present)].append(name)
    able = [family for family in groups if is_convolution(family)] or [f for f in groups if f in _PRODUCTS]
    able = able or [family for family in groups if family != LAYOUT] or list(groups)
    family = max(sorted(able), key=lambda f: sum(kernels[name] for name in groups[f]))
    return family, sorted(groups[family], key=lambda name: (-kernels[name], name))


# ---- beside the count


def with_macs(convolutions: Iterable[ConvolutionTiming], static: StaticCount | None) -> tuple[ConvolutionTiming, ...]:
    """`convolutions` with what each part is asked to do, where the count says so of its module.

    Each part of a call has as many MACs as its forward. Of a module that runs forward again inside backward, the forward part
    has those too; where a gradient was needed in some calls only, it has what backward's count leaves for it. None where the
    module is no convolution, as its MACs may be other products' too, and where calls and count don't fit.
    """
    timings = tuple(convolutions)
    nodes = {node.path: node for node in static.modules} if static is not None else {}
    calls = {Part(timing.path, timing.part): timing.calls for timing in timings}
    return tuple(replace(timing, macs=_macs(timing, nodes.get(timing.path), calls)) for timing in timings)


def _macs(timing: ConvolutionTiming, node: ModuleNode | None, calls: Mapping[Part, int]) -> int | None:
    if node is None or not node.forward.macs or not _CONVOLUTION_CONFIG.match(node.config):
        return None
    if timing.calls == node.calls:
        return node.forward.macs
    if timing.part == "fprop":
        again = node.recompute.macs if timing.calls > node.calls else 0
        return node.forward.macs + again if again else None
    other: ConvolutionPart = "wgrad" if timing.part == "dgrad" else "dgrad"
    others = calls.get(Part(timing.path, other), 0)
    if others not in (0, node.calls):
        return None
    left = node.backward.macs - (node.forward.macs if others else 0)
    return left if left > 0 else None

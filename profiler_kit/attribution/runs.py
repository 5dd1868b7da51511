"""A run's trace -> what its `ConfigRun` holds: the work, the idle time and the waits of an average traced step.

Only marked steps count. The trace also holds work outside of them (the profiler's own warm-up), which is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, NamedTuple, cast

import numpy as np

from profiler_kit.attribution.busy_time import busy_pieces
from profiler_kit.attribution.events import innermost_enclosing
from profiler_kit.attribution.host_only import HostLine, host_line
from profiler_kit.attribution.host_time import phase_host_ns
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, Device
from profiler_kit.attribution.run_waits import waiting_of_device, waiting_of_host
from profiler_kit.attribution.shares import apportion, divide_rounded
from profiler_kit.errors import TraceError
from profiler_kit.records import marks
from profiler_kit.records.counts import PHASES, Phase
from profiler_kit.records.runs import ConfigRun, KernelStat, LayerTiming, PhaseTiming
from profiler_kit.records.traces import TRACE_PHASES
from profiler_kit.traces.intervals import sum_by
from profiler_kit.traces.kernels import ConvolutionOp, classify, convolution_op
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Mask
from profiler_kit.units import text

Clock = Literal["kernel", "operator"]

NEGLIGIBLE_SHARE: Final = 0.005  # of the time: less than any digit that is shown
RECOMPUTING: Final = "autograd::recompute"  # the name of what a node spends on recomputing outside of operators
_OTHER: Final = PHASE_NUMBERS["other"]


def attribute_run(run: ConfigRun, attribution: Attribution, *, clock: Clock | None = None) -> ConfigRun:
    """`run` with the figures of its traced steps, per step: work by phase, module and kernel, idle time, waits, launch queue.

    `clock`: ``kernel`` adds up device work by launch, ``operator`` the self time of operators on the host; by default the
    first where the trace has device events, else the second.

    Counts: each busy instant of a device once, also where kernels of several streams overlap. Work launched outside the
    marked steps is left out, kernels without a known launch are unattributed; the notes say how much of either.

    Raises: TraceError for a trace that has none of our marks, or no device events for that clock.
    """
    require_steps(attribution)
    chosen: Clock = clock or ("kernel" if len(attribution.device.rows) else "operator")
    if chosen == "kernel" and not len(attribution.device.rows):
        raise TraceError(
            "it holds no device work",
            where=attribution.table.file,
            hint="use the operator clock, or record on a device with CUDA activity",
        )
    steps, here = len(attribution.steps), attribution
    if chosen == "kernel":
        here = _in_steps(attribution)
        work, waiting = _kernel_work(here), waiting_of_device(here, steps)
    else:
        line = host_line(attribution, _works_in_steps(attribution))
        work, waiting = _operator_work(attribution, line), waiting_of_host(attribution, line, steps)
    figures = _per_step(work, steps)
    host_ns = {phase: divide_rounded(ns, steps) for phase, ns in phase_host_ns(attribution).items()}
    return replace(
        run,
        clock=chosen,
        traced_steps=steps,
        phases=_phases(run.phases, figures.layers, host_ns, waiting.wait_ns),
        modules=figures.layers,
        kernels=figures.kernels,
        unattributed_ns=figures.unattributed_ns,
        span_ns=waiting.span_ns,
        idle=waiting.idle,
        waits=waiting.waits,
        queue=waiting.queue,
        notes=(*run.notes, *_notes(attribution, work, here)),
    )


def require_steps(attribution: Attribution) -> None:
    """Raises TraceError where no step of the trace has a mark of ours."""
    names = attribution.table.names
    if not any(
        names[i].startswith(marks.STEP) for i in np.unique(attribution.table.name[attribution.host.rows]).tolist()
    ):
        raise TraceError(
            f"none of the steps in it is marked ({marks.STEP}...)",
            where=attribution.table.file,
            hint="give a trace that analyze wrote, traces/<config>.json.gz in its report folder",
        )


# ---- work of the marked steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """Kernels, copies, fills or operators of the traced steps. `phase` is NONE where they are nobody's.

    `linked`: which were launched in a step. `sum_ns`: durations; `ns`: charged time. `convolution`: a position in
    `_CONVOLUTIONS`, of the operator that launched each. Names and modules are positions in `names` and `paths`.
    """

    names: Sequence[str]
    paths: Sequence[str]
    name: Ids
    phase: Bytes
    module: Ids
    linked: Mask
    convolution: Bytes
    ns: Ints
    sum_ns: Ints


_CONVOLUTIONS: Final[tuple[ConvolutionOp | None, ...]] = ("fprop", "dgrad", "both gradients", None)
_NO_CONVOLUTION: Final = np.int8(3)


def _in_steps(attribution: Attribution) -> Attribution:
    """`attribution` with only the device work that a marked step launched, or that has no known launch and ran later."""
    device = attribution.device
    unknown = (device.launch == NONE) & (device.step == NONE) & (device.start_ns >= attribution.steps[0].start_ns)
    chosen = (device.step != NONE) | unknown
    columns = {field.name: getattr(device, field.name)[chosen] for field in fields(Device)}
    columns["aligned"] = np.full_like(columns["aligned"], NONE)  # positions in the whole device's columns
    return replace(attribution, device=Device(**columns))


def _kernel_work(attribution: Attribution) -> _Work:
    device, table = attribution.device, attribution.table
    linked = device.step != NONE
    # A collective belongs to the module that launched it.
    module = np.where(
        device.launch != NONE, np.append(attribution.host.module, np.int32(NONE))[device.launch], device.module
    )
    length = device.end_ns - device.start_ns
    pieces = busy_pieces(attribution, np.ones(len(length), np.bool_))
    return _Work(
        names=table.names,
        paths=[module.path for module in attribution.modules],
        name=table.name[device.rows],
        phase=np.where(linked & (device.within != _OTHER), device.within, NONE).astype(np.int8),
        module=module.astype(np.int32),
        linked=linked,
        convolution=_convolutions(attribution, device.launch),
        ns=sum_by(pieces.position, pieces.end - pieces.start, len(length)),
        sum_ns=length,
    )


def _works_in_steps(attribution: Attribution) -> Mask:
    """Which host events lie in a marked step, on a thread that takes part: with marks of ours, or running autograd nodes."""
    host = attribution.host
    taking_part = np.isin(host.thread, host.thread[(host.phase != NONE) & (host.phase != _OTHER)])
    return np.asarray((host.step != NONE) & taking_part, np.bool_)


def _operator_work(attribution: Attribution, line: HostLine) -> _Work:
    table, work = attribution.table, line.work
    some = ~work.recomputes | (line.self_ns > 0)
    position = work.position[some]
    name = np.where(work.recomputes[some], len(table.names), table.name[attribution.host.rows[position]])
    phase = work.phase[some]
    return _Work(
        names=(*table.names, RECOMPUTING),
        paths=[module.path for module in attribution.modules],
        name=name.astype(np.int32),
        phase=np.where(phase != _OTHER, phase, NONE).astype(np.int8),
        module=work.module[some],
        linked=np.ones(len(position), np.bool_),
        convolution=np.where(work.recomputes[some], _NO_CONVOLUTION, _convolutions(attribution, position)),
        ns=line.ns[some],
        sum_ns=line.self_ns[some],
    )


def _convolutions(attribution: Attribution, position: Ids) -> Bytes:
    """What the innermost convolution operator around each host position does, as an index of `_CONVOLUTIONS`."""
    table, host = attribution.table, attribution.host
    of_name = np.array([_CONVOLUTIONS.index(convolution_op(name)) for name in table.names] or [0], np.int8)
    # Every convolution operator is an operator: marks and calls of Python are not asked.
    op = np.where(host.is_operator, of_name[table.name[host.rows]], _NO_CONVOLUTION)
    around = np.append(innermost_enclosing(host.parent, op != _NO_CONVOLUTION), np.int32(NONE))[position]
    return np.where(around != NONE, op[around], _NO_CONVOLUTION) if len(op) else np.full(len(position), _NO_CONVOLUTION)


# ---- per step


class _Leaf(NamedTuple):
    """The finest thing added up: the work of one name of one owner (phase NONE: nobody's)."""

    phase: int
    module: int
    name: int


class _Figures(NamedTuple):
    """Figures of one step: `layers` and `unattributed_ns` sum to the charged time, and so do `kernels`."""

    layers: tuple[LayerTiming, ...]
    kernels: tuple[KernelStat, ...]
    unattributed_ns: int


def _per_step(work: _Work, steps: int) -> _Figures:
    """`work` by owner and by name, divided by the number of `steps`; owners of a phase in the order of their first work."""
    nobody = work.phase == NONE
    columns = (work.phase, np.where(nobody, NONE, work.module), work.name)
    keys, first, leaf = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    leaf = leaf.reshape(-1)
    leaves = [_Leaf(*key) for key in keys.tolist()]
    total = sum_by(leaf, work.ns, len(leaves)).tolist()
    calls = np.bincount(leaf, minlength=len(leaves)).tolist()
    launched_by: dict[_Leaf, set[int]] = defaultdict(set)
    for index, does in np.unique(np.stack((leaf, work.convolution), axis=1), axis=0).tolist():
        launched_by[leaves[index]].add(does)
    in_order = [leaves[i] for i in np.argsort(first).tolist()]
    calls_of = dict(zip(leaves, calls, strict=True))
    totals = dict(zip(leaves, total, strict=True))
    shares = apportion({leaf: totals[leaf] for leaf in in_order}, steps)

    def stats(groups: Iterable[tuple[int, Sequence[_Leaf]]]) -> tuple[KernelStat, ...]:
        kernels = []
        for name, members in groups:
            launchers = {number for leaf in members for number in launched_by[leaf]}
            kind = classify(work.names[name], _CONVOLUTIONS[next(iter(launchers))] if len(launchers) == 1 else None)
            kernels.append(
                KernelStat(
                    name=work.names[name],
                    family=kind.family,
                    calls=divide_rounded(sum(calls_of[leaf] for leaf in members), steps),
                    kernel_ns=sum(shares[leaf] for leaf in members),
                    op=kind.op,
                    math=kind.math,
                )
            )
        return tuple(sorted(kernels, key=lambda stat: (-stat.kernel_ns, stat.name)))

    by_owner: dict[tuple[int, int], list[_Leaf]] = defaultdict(list)
    by_name: dict[int, list[_Leaf]] = defaultdict(list)
    for member in in_order:
        by_owner[member.phase, member.module].append(member)
        by_name[member.name].append(member)
    unattributed = by_owner.pop((NONE, NONE), [])
    layers = [
        LayerTiming(
            path=work.paths[module] if module != NONE else "",
            phase=cast(Phase, TRACE_PHASES[phase]),
            kernel_ns=sum(shares[leaf] for leaf in members),
            kernels=stats((leaf.name, [leaf]) for leaf in members),
        )
        for (phase, module), members in by_owner.items()
    ]
    return _Figures(
        layers=tuple(sorted(layers, key=lambda layer: PHASES.index(layer.phase))),
        kernels=stats(by_name.items()),
        unattributed_ns=sum(shares[leaf] for leaf in unattributed),
    )


def _phases(
    timed: Sequence[PhaseTiming],
    layers: Sequence[LayerTiming],
    host_ns: Mapping[int, int],
    wait_ns: Mapping[int, int],
) -> tuple[PhaseTiming, ...]:
    """The phases that a stopwatch saw or that have work, each with its work and its time on the host."""
    stopwatch = {timing.phase: timing for timing in timed}
    spent: dict[Phase, int] = defaultdict(int)
    for layer in layers:
        spent[layer.phase] += layer.kernel_ns
    return tuple(
        replace(
            stopwatch.get(phase, PhaseTiming(phase=phase)),
            kernel_ns=spent.get(phase, 0),
            host_ns=host_ns.get(PHASE_NUMBERS[phase])
            if phase != "other"
            else None,  # that holds what is in no phase too
            wait_ns=wait_ns.get(PHASE_NUMBERS[phase]),
        )
        for phase in PHASES
        if phase in stopwatch or phase in spent
    )


# ---- notes


def _notes(attribution: Attribution, work: _Work, here: Attribution) -> Iterator[str]:
    """Short sentences on what the figures leave out. `here`: `attribution` with only the device work of the marked steps."""
    total, count = int(work.ns.sum()), len(work.ns)
    for group, what in (
        (~work.linked, "have no launch in the trace"),
        (work.linked & (work.phase == NONE), "ran in a step but in no phase of it"),
    ):
        if group.any():
            share = f"{100 * int(work.ns[group].sum()) / total:.2g} % of the time" if total else "no time"
            yield f"{int(group.sum())} of {count} events {what} ({share}): unattributed"
    beside = int(work.sum_ns.sum()) - total
    if beside > NEGLIGIBLE_SHARE * total:
        yield f"{text(beside, 'ns')} of work ran beside other work and are counted once"
    device = attribution.device
    outside = ~np.isin(device.rows, here.device.rows)
    if outside.any():
        ns = int((device.end_ns - device.start_ns)[outside].sum())
        yield f"{int(outside.sum())} device events ({text(ns, 'ns')}) were launched outside the traced steps: left out"
    if attribution.table.malformed:
        yield f"{attribution.table.malformed} malformed events were left out"

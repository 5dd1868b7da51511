"""What a run's traces say, added to the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from profiler_kit.errors import TraceError
from profiler_kit.records.counts import PHASES, Phase, StaticCount
from profiler_kit.records.runs import Attribution, ConfigRun, PhaseTiming, Span


def attributed(run: ConfigRun, trace: Path) -> tuple[ConfigRun, tuple[Span, ...]]:
    """`run` with its trace's device time by phase and layer; a trace that can't be read is a note, the timings stand."""
    from profiler_kit.attribute import attribute

    try:
        found = attribute(trace)
    except TraceError as error:
        return replace(run, notes=(*run.notes, f"The trace could not be attributed: {error}")), ()
    return (
        replace(
            run,
            clock=found.clock,
            phases=_with_kernel_clock(run.phases, found),
            modules=found.layers,
            kernels=found.kernels,
            unattributed_ns=found.unattributed_ns,
            notes=(*run.notes, *found.notes),
        ),
        found.spans,
    )


def _with_kernel_clock(phases: Sequence[PhaseTiming], found: Attribution) -> tuple[PhaseTiming, ...]:
    timed = {timing.phase: timing for timing in phases}
    spent: dict[Phase, int] = {}
    for layer in found.layers:
        spent[layer.phase] = spent.get(layer.phase, 0) + layer.kernel_ns
    return tuple(
        replace(timed.get(phase, PhaseTiming(phase=phase)), kernel_ns=spent.get(phase, 0))
        for phase in PHASES
        if phase in timed or phase in spent
    )


def with_parts(run: ConfigRun, trace: Path) -> ConfigRun:
    """`run` with how each of its convolutions was done, from the trace of their parts; one that can't be read is a note."""
    from profiler_kit.attribution.convolutions import convolutions

    try:
        found = convolutions(trace, run.part_workspaces)
    except TraceError as error:
        return replace(run, notes=(*run.notes, f"How its convolutions were done could not be read: {error}"))
    return replace(run, convolutions=found, part_workspaces=())


def with_counted_work(runs: Iterable[ConfigRun], static: StaticCount | None) -> tuple[ConfigRun, ...]:
    """`runs` with the MACs that each convolution's part is asked to do; not where a step holds other examples than counted."""
    from profiler_kit.attribution.convolutions import with_macs

    return tuple(
        replace(run, convolutions=with_macs(run.convolutions, static)) if _does_the_counted_work(run) else run
        for run in runs
    )


def _does_the_counted_work(run: ConfigRun) -> bool:
    return run.config.setting("batch") is None

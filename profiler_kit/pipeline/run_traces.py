"""What a run's traces say, added to the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_kit.errors import TraceError
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.runs import ConfigRun, Span

if TYPE_CHECKING:
    from profiler_kit.attribution.result import Attribution


def attributed(run: ConfigRun, trace: Path) -> tuple[ConfigRun, tuple[Span, ...]]:
    """`run` with the figures of its traced steps, and the lanes of the trace; one that can't be read is a note on the run."""
    from profiler_kit.attribution.lanes import annotation
    from profiler_kit.attribution.runs import attribute_run

    try:
        attribution = _attribute_file(trace)
        return attribute_run(run, attribution), annotation(attribution).spans
    except TraceError as error:
        return replace(run, notes=(*run.notes, f"The trace could not be attributed: {error}")), ()


def with_parts(run: ConfigRun, trace: Path) -> ConfigRun:
    """`run` with how each of its convolutions was done, from the trace of their parts; one that can't be read is a note."""
    from profiler_kit.attribution.convolutions import convolutions

    try:
        timings = convolutions(_attribute_file(trace), run.part_workspaces)
    except TraceError as error:
        return replace(run, notes=(*run.notes, f"How its convolutions were done could not be read: {error}"))
    return replace(run, convolutions=timings, part_workspaces=())


def _attribute_file(trace: Path) -> Attribution:
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.traces.reader import read

    return attribute(read(trace, partial=False))


def with_counted_work(runs: Iterable[ConfigRun], static: StaticCount | None) -> tuple[ConfigRun, ...]:
    """`runs` with the MACs that each convolution's part is asked to do; not where a step holds other examples than counted."""
    from profiler_kit.attribution.convolutions import with_macs

    return tuple(
        replace(run, convolutions=with_macs(run.convolutions, static)) if _does_the_counted_work(run) else run
        for run in runs
    )


def _does_the_counted_work(run: ConfigRun) -> bool:
    return run.config.setting("batch") is None

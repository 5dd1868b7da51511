"""Adds the figures of a run's traces to the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from profiler_kit.errors import TraceError
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.lanes import Annotation, StepTimeline
from profiler_kit.records.mean_step import LossShares
from profiler_kit.records.runs import ConfigRun

if TYPE_CHECKING:
    from profiler_kit.attribution.result import Attribution
    from profiler_kit.simulation.step_model import StepModel


class AttributedRun(NamedTuple):
    """A run with the times of its trace, the trace's annotation, the timeline of one step, and the model of its steps.

    `loss`: how much of the time between forward and backward is the loss.
    """

    run: ConfigRun
    annotation: Annotation
    timeline: StepTimeline | None
    model: StepModel | None = None
    loss: LossShares = LossShares()


def attribute_run_trace(run: ConfigRun, trace: Path, *, whole_marks: bool = False) -> AttributedRun:
    """Add the attributed times of the trace to `run`; an unreadable trace adds a note.

    `whole_marks`: the marks of steps hold nothing of the tool.
    """
    from profiler_kit.attribution.annotation_lanes import build_annotation
    from profiler_kit.attribution.loss_shares import loss_shares
    from profiler_kit.attribution.run_figures import attribute_run
    from profiler_kit.attribution.step_lanes import step_timeline

    try:
        attribution = _attribute_file(trace)
        annotation = build_annotation(attribution)
        timeline = step_timeline(attribution, annotation.spans)
        run, model = with_replay(attribute_run(run, attribution, whole_marks=whole_marks), attribution)
        return AttributedRun(run, annotation, timeline, model, loss_shares(attribution))
    except TraceError as error:
        run = replace(run, notes=(*run.notes, f"The trace could not be attributed: {error}"))
        return AttributedRun(run, Annotation(spans=()), None)


def with_replay(run: ConfigRun, attribution: Attribution) -> tuple[ConfigRun, StepModel | None]:
    """Add the step without the profiler to `run`, and the places without which it would be shorter. Return the model as well."""
    import numpy as np

    from profiler_kit.attribution.run_figures import is_tool_wait
    from profiler_kit.simulation.replayed_trace import replayed

    if run.traced is None:
        return run, None
    own_waits = is_tool_wait(attribution, np.arange(len(attribution.host.rows), dtype=np.int32))
    timed_ns = run.step_ns.median if run.step_ns is not None else None
    replay = replayed(attribution, run.traced, timed_ns=timed_ns, own_waits=own_waits)
    return replace(run, traced=replay.summary, profiler_scale=replay.profiler_scale), replay.model


def with_convolution_parts(run: ConfigRun, trace: Path) -> ConfigRun:
    """Add the times of each convolution's parts from their trace to `run`; an unreadable trace adds a note."""
    from profiler_kit.attribution.convolutions import convolution_timings

    try:
        timings = convolution_timings(_attribute_file(trace), run.part_workspaces)
    except TraceError as error:
        return replace(run, notes=(*run.notes, f"The trace of the convolutions could not be read: {error}"))
    return replace(run, convolutions=timings, part_workspaces=())


def _attribute_file(trace: Path) -> Attribution:
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.traces.reader import read

    return attribute(read(trace, partial=False))


def with_counted_work(runs: Iterable[ConfigRun], static: StaticCount | None) -> tuple[ConfigRun, ...]:
    """Add the counted MACs to each convolution's parts, except for runs with a batch size other than the counted one."""
    from profiler_kit.attribution.convolutions import with_macs

    return tuple(
        replace(run, convolutions=with_macs(run.convolutions, static)) if _has_counted_batch_size(run) else run
        for run in runs
    )


def _has_counted_batch_size(run: ConfigRun) -> bool:
    return run.config.setting("batch") is None

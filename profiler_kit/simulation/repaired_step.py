"""The steps of a trace before and after a change, as lanes for a chart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiler_kit.attribution.result import phase_name
from profiler_kit.records.lanes import UNATTRIBUTED, StepRepair
from profiler_kit.records.runs import Span
from profiler_kit.simulation.replay import Replay, simulate
from profiler_kit.simulation.step_model import USUAL, Change, StepModel

# Work of one phase is one box, with gaps of up to this part of the time that is shown: shorter ones cannot be seen.
_LARGEST_JOINED_PART = 500


def repaired_step(model: StepModel, change: Change, finding: int) -> StepRepair:
    """Return the steps without the profiler before and after `change`, which repairs the finding with this number.

    The two times differ by the saving of `change`: `StepModel.saving`.
    """
    before = simulate(model.untraced[USUAL])
    after = simulate(model.changed(change))
    return StepRepair(
        finding=finding,
        steps=max(1, min(before.graph.steps, max(before.graph.steps - 1, 2))),
        before_ns=before.total_ns,
        after_ns=after.total_ns,
        before=tuple(_spans(model, before, before.total_ns)),
        after=tuple(_spans(model, after, before.total_ns)),
    )


def _spans(model: StepModel, replay: Replay, shown_ns: int) -> Iterator[Span]:
    """Yield the work of each lane by phase, from the start of the steps to their end."""
    first_ns = replay.first_ns
    joined_ns = shown_ns // _LARGEST_JOINED_PART
    start, end = replay.start_ns - first_ns, np.minimum(replay.end_ns - first_ns, replay.total_ns)
    drawn = (start >= 0) & (end > start)
    for lane, name in enumerate(model.lanes):
        nodes = np.flatnonzero(drawn & (replay.graph.lane == lane))
        nodes = nodes[np.argsort(start[nodes], kind="stable")]
        if not len(nodes):
            continue
        phase = model.phase[nodes]
        apart = start[nodes][1:] - np.maximum.accumulate(end[nodes])[:-1] > joined_ns
        cuts = np.flatnonzero((phase[1:] != phase[:-1]) | apart) + 1
        for part in np.split(nodes, cuts):
            title = phase_name(int(model.phase[part[0]])) or UNATTRIBUTED
            yield Span(lane=name, name=title, start_ns=int(start[part[0]]), end_ns=int(end[part].max()), family=title)

"""What a step would save if the parts that a finding claims went away, from the replay of its trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiler_kit.records.report import Finding
from profiler_kit.records.traces import Saving

if TYPE_CHECKING:
    from profiler_kit.simulation.step_model import Change, StepModel


class StepSavings:
    """The savings of findings, as shares of the step without the profiler.

    Of several traces, the largest counts: a finding is about the trace that it affects most.
    """

    def __init__(self, models: Sequence[StepModel]) -> None:
        self._models = models

    def share(self, finding: Finding, after: Sequence[Finding] = ()) -> float:
        """Return the share of the step that goes with `finding`, once `after` is repaired."""
        gone = [_change(repaired) for repaired in after]
        return max(model.saving(_change(finding), gone) for model in self._models)

    def saving(self, finding: Finding) -> Saving:
        """Return the saving of `finding` alone, and its range over the possible costs of the profiler."""
        usual, *others = max(model.savings(_change(finding)) for model in self._models)
        return Saving(median=usual, low=min(usual, *others), high=max(usual, *others))


def _change(finding: Finding) -> Change:
    from profiler_kit.simulation.step_model import Change  # reads arrays, which a saved report does not need

    return Change(finding.claims, (1.0 - finding.keeps) * finding.weight)

"""What a step saves with the repair of a finding, by a replay, and what goes with the same repair.

One repair often removes what several findings name: a metric on the host is a wait, a copy and work on the CPU, all in one
function. They are one finding, whose saving is that of all of it: the one that says why it takes time, with the others as its
symptoms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from profiler_kit.diagnosis.phrases import join_sentences
from profiler_kit.diagnosis.work_sites import removable_places, site_claim, site_text
from profiler_kit.records.report import Finding, Symptom
from profiler_kit.records.traces import Saving, WorkSite

if TYPE_CHECKING:
    from profiler_kit.simulation.graph import Ints
    from profiler_kit.simulation.step_model import Change, StepModel

# Of two findings, one contains the other if three quarters of the work that goes with the other surely go with it.
MIN_PART_INSIDE: Final = 0.75
# A place goes with findings that are at least half of it. Of less, it does mostly other things.
MIN_PART_OF_PLACE: Final = 0.5
# A place that saves about the same as the finding says nothing new.
MIN_ADDED_BY_PLACE: Final = 0.03
SERIOUS: Final = ("high", "medium")


class StepSavings:
    """The savings of findings, as shares of the step without the profiler.

    Of several traces, the largest counts: a finding is about the trace that it affects most. `sites`: the places of the traces.
    `topics`: those of rules.
    """

    def __init__(
        self, models: Sequence[StepModel], sites: Iterable[WorkSite] = (), topics: Mapping[str, str] | None = None
    ) -> None:
        self._models = models
        self._places = [
            (
                site.saving.median,
                Symptom(rule="", title=site_text(site), claims=(site_claim(site),), weight=1.0, contains=True),
            )
            for site in removable_places(tuple(sites))
        ]
        self._names = {place.claims: place.title for _, place in self._places}
        self._topics = topics or {}
        self._removed: dict[tuple[int, Change], Ints] = {}

    def shares(self, findings: Sequence[Finding], after: Sequence[Finding] = ()) -> list[float]:
        """Return the share of the step that goes with each of `findings`, once `after` is repaired."""
        changes, gone = list(map(change_of, findings)), list(map(change_of, after))
        return [
            max(of_models) for of_models in zip(*(m.savings_after(changes, gone) for m in self._models), strict=True)
        ]

    def claimed_share(self, finding: Finding, others: Sequence[Finding]) -> float:
        """Return the part of the work of `finding` that `others` claim as well."""
        claims = [claim for other in others for claim in other.claims]
        return max(model.claimed_share(finding.claims, claims) for model in self._models)

    def saving(self, finding: Finding) -> Saving:
        """Return the saving of `finding` alone, and its range over the possible costs of the profiler."""
        usual, *others = max(model.savings(change_of(finding)) for model in self._models)
        return Saving(median=usual, low=min(usual, *others), high=max(usual, *others))

    def one_repair(self, first: Finding, others: Sequence[Finding]) -> tuple[Finding, list[Finding]]:
        """Return the finding about all that the repair of `first` removes, and the findings of which it consists.

        If findings are half of the smallest place that `first` is in, the finding is about this place. It has the name of a
        serious one inside that says why, if there is one.
        """
        if first.saving is None or self._topics.get(first.rule) == "bound":
            return first, [first]
        # advice that a run can try keeps a finding of its own
        others = [item for item in others if item.saving is not None and item.trial is None and not item.tries]
        head, place = self._around(first, others)
        whole = head if place is None else replace(head, symptoms=(place,))
        inside = [
            item for item in (first, *others) if item is not head and self._part_inside(item, whole) >= MIN_PART_INSIDE
        ]
        found = [_symptom(item, contains=place is not None and item.claims == place.claims) for item in inside]
        named = [item.claims for item in found]
        symptoms = (*(item for item in whole.symptoms if item.claims not in named), *found)
        return (self._with(head, symptoms) if symptoms else head), [head, *inside]

    def _with(self, head: Finding, symptoms: tuple[Symptom, ...]) -> Finding:
        """Return `head` with its symptoms, their saving, and the place in its title."""
        whole = replace(head, symptoms=symptoms)
        place = next((self._names.get(item.claims, "") for item in symptoms if item.contains), "")
        removed = f"The same repair removes: {'; '.join(item.title for item in symptoms)}."
        return replace(
            whole,
            title=f"{head.title}, in {place}" if place else head.title,
            explanation=join_sentences(head.explanation, removed),
            saving=self.saving(whole),
        )

    def _around(self, first: Finding, others: Sequence[Finding]) -> tuple[Finding, Symptom | None]:
        """Return the finding that says why the smallest place around `first` takes time, and the place; None without one."""
        is_place = self._topics.get(first.rule) == "site"
        least = _median(first) + MIN_ADDED_BY_PLACE
        around = [(_median(first), _symptom(first, contains=True))] if is_place else self._places
        for saving, place in around:
            if not is_place and (saving < least or self._part_inside(first, place) < MIN_PART_INSIDE):
                continue
            inside = [
                item
                for item in (first, *others)
                if self._topics.get(item.rule) not in ("site", "bound")
                and self._part_inside(item, place) >= MIN_PART_INSIDE
            ]
            if inside and self._share_of_all(inside) >= MIN_PART_OF_PLACE * saving:
                reasons = [item for item in inside if self._topics[item.rule] == "cause" and item.severity in SERIOUS]
                head = max(reasons, key=_median, default=first)
                return head, None if head.claims == place.claims else place
        return first, None

    def _share_of_all(self, findings: Sequence[Finding]) -> float:
        return sum(self.shares([item], findings[:i])[0] for i, item in enumerate(findings))

    def _part_inside(self, inner: Finding | Symptom, outer: Finding | Symptom) -> float:
        """Return the part of the work that goes with `inner` and also with `outer`, in the trace with the smallest one."""
        parts = [
            model.shared_part(removed_ns, self._removed_ns(i, change_of(outer)))
            for i, model in enumerate(self._models)
            if (removed_ns := self._removed_ns(i, change_of(inner))).any()
        ]
        return min(parts, default=0.0)

    def _removed_ns(self, i: int, change: Change) -> Ints:
        if (i, change) not in self._removed:
            self._removed[i, change] = self._models[i].removed_ns(change)
        return self._removed[i, change]


def _median(finding: Finding) -> float:
    return finding.saving.median if finding.saving is not None else 0.0


def _symptom(finding: Finding, *, contains: bool) -> Symptom:
    return Symptom(
        rule=finding.rule, title=finding.title, claims=finding.claims, weight=finding.weight, contains=contains
    )


def change_of(item: Finding | Symptom) -> Change:
    """Return what the repair of a finding changes in a step: the whole place that contains it goes."""
    from profiler_kit.simulation.step_model import Change  # reads arrays, which a saved report does not need

    if isinstance(item, Symptom):
        return Change(item.claims, item.weight)
    whole = next((symptom for symptom in item.symptoms if symptom.contains), None)
    return change_of(whole) if whole is not None else Change(item.claims, (1.0 - item.keeps) * item.weight)

"""Rank findings by what a step would save without their causes.

The next finding in the order is always the one without which the step would save most once the findings before it are repaired
(`StepSavings`), after the causes that explain a part of it. Where the steps cannot be replayed, the step is a sequence
of its parts (`account.Account`), and removing a part saves its share. Findings of at least `medium` severity precede the others,
which are less certain or save less. A finding that explains little of a trace, or that earlier ones mostly explain, is at most
`low` there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from profiler_kit.diagnosis.account import Account, step_account
from profiler_kit.diagnosis.step_savings import SERIOUS, StepSavings
from profiler_kit.records.claims import PEAK
from profiler_kit.records.report import SEVERITIES, Finding, Report, Severity, TraceReport

# Savings that differ by less than this are about the same: severity and weight decide.
TIE: Final = 0.05
# Why time goes, at which place of the program, in what kind of work, at which limit of the machine: each follows an earlier one
# that explains a part of it.
BOUND: Final = "bound"
REASONS: Final = ("cause", "site", "place", BOUND)
# A change that saves less than a tenth of the step is rarely worth the effort. One that surely saves a fifth is never minor.
MIN_SAVING: Final = 0.1
SURE_SAVING: Final = 0.2
USUAL_PART_OF_BOUND: Final = 0.5  # no single change removes all that a limit of the machine costs
# A finding about a limit of the machine, which no single change removes, follows one of at least this part of its size. An
# uncertain (low) one does not explain a serious one.
MIN_PART_OF_BOUND: Final = 0.25
# A finding that says where time goes follows one with which this part of its saving goes.
MIN_EXPLAINED_PART: Final = 0.3
# A finding that adds less to the explained share does not need attention of its own.
MIN_ADDED_SHARE: Final = 0.03
# Neither does one of which earlier findings explain more than this part, unless much of the step is left.
MAX_EXPLAINED_PART: Final = 0.5
LARGE_ADDED_SHARE: Final = 0.25


def rank(
    report: Report | TraceReport,
    findings: Sequence[Finding],
    *,
    savings: StepSavings | None = None,
    topics: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Finding, ...]:
    """Return `findings` with their shares: first those that explain time, then the peak, then those without claims.

    Of those that explain time or the peak, serious ones precede the others, then the one that saves most once the findings before
    it are repaired. Findings without claims keep their order. `topics`: those of rules; a finding that says where time goes
    follows one that says why a part of it does. `savings`: the replay of the steps; None where there is none.
    """
    if savings is not None:
        findings = [_with_saving(item, savings, topics.get(item.rule, "")) for item in findings]
    with_claims = [finding for finding in findings if finding.claims]
    account = step_account(report, with_claims)
    levels = {rule: REASONS.index(topic) for rule, topic in topics.items() if topic in REASONS}
    alone = {finding.rule: account.share(finding) for finding in with_claims}
    ordered: list[Finding] = []
    placed: set[int] = set()  # the identities of findings that are in the order, or symptoms of one that is
    for about_peak, is_serious in itertools.product((False, True), (True, False)):
        remaining = [
            finding
            for finding in with_claims
            if (PEAK in finding.claims) is about_peak and (finding.severity in SERIOUS) is is_serious
        ]
        while remaining := [finding for finding in remaining if id(finding) not in placed]:
            repaired = [finding for finding in ordered if finding.saving is not None]
            amounts = _amounts(remaining, account, savings, repaired)
            i = _cause_of(_largest(remaining, amounts), remaining, levels, savings, repaired)
            finding, added, parts = remaining[i], amounts[i], [remaining[i]]
            if savings is not None:
                others = [item for item in with_claims if id(item) not in placed and item is not finding]
                finding, parts = savings.one_repair(finding, others)
                added = _amounts([finding], account, savings, repaired)[0] if finding.symptoms else added
            placed |= set(map(id, parts))
            finding = replace(finding, share=account.share(finding) if finding.saving is None else added)
            account.add(finding)
            is_place = levels.get(finding.rule, 0) > 0
            # of a report, the other findings may advise what was measured
            is_minor = isinstance(report, TraceReport) or (is_place and bool(account.cells))
            is_minor |= finding.saving is not None and finding.trial is None
            is_minor = is_minor and _is_minor(finding, added, alone[finding.rule] or 0.0)
            is_minor |= is_place and (_is_explained(finding, added) or _is_claimed(finding, savings, repaired))
            ordered.append(_at_most(finding, "low") if is_minor else finding)
    ordered.sort(key=lambda finding: (PEAK in finding.claims, finding.severity not in SERIOUS))
    return (*ordered, *(finding for finding in findings if not finding.claims))


def _with_saving(finding: Finding, savings: StepSavings, topic: str) -> Finding:
    """Return a finding about time with its saving, and not more severe than its low end allows; a sure cause is not low."""
    if not finding.claims or PEAK in finding.claims:
        return finding
    saving = savings.saving(finding)
    low = saving.low * (USUAL_PART_OF_BOUND if topic == BOUND else 1.0)
    is_sure = low >= SURE_SAVING
    most: Severity = "high" if is_sure else "medium" if low >= MIN_SAVING else "low"
    severity: Severity = "medium" if is_sure and topic == "cause" and finding.severity == "low" else finding.severity
    return _at_most(replace(finding, saving=saving, severity=severity), most)


def _amounts(
    findings: Sequence[Finding], account: Account, savings: StepSavings | None, repaired: Sequence[Finding]
) -> list[float]:
    """Return what each of `findings` adds to the findings before: a saving if it has one, otherwise a share."""
    if savings is None:
        return [account.share(finding) or 0.0 for finding in findings]
    saving = [finding for finding in findings if finding.saving is not None]
    shares = dict(zip(map(id, saving), savings.shares(saving, repaired) if repaired and saving else (), strict=False))
    return [
        account.share(finding) or 0.0 if finding.saving is None else shares.get(id(finding), finding.saving.median)
        for finding in findings
    ]


def _largest(findings: Sequence[Finding], amounts: Sequence[float]) -> int:
    """Return the index of the largest amount; of amounts that are about the same, the first of the most severe ones."""
    least = max(amounts) - TIE
    tied = [i for i, amount in enumerate(amounts) if amount > least]
    return max(tied, key=lambda i: _severity(findings[i]))


def _severity(finding: Finding) -> int:
    return -SEVERITIES.index(finding.severity)


def _is_minor(finding: Finding, added: float, alone: float) -> bool:
    """Return whether a finding adds little to its trace, or little that earlier findings do not explain."""
    if finding.weight < MIN_ADDED_SHARE:
        return True
    if finding.saving is None and alone < MIN_ADDED_SHARE:
        return False  # the mean of several traces hides what matters on one of them
    whole = alone if finding.saving is None else finding.saving.median
    return added < MIN_ADDED_SHARE or (added < LARGE_ADDED_SHARE and added < (1.0 - MAX_EXPLAINED_PART) * whole)


def _is_explained(finding: Finding, added: float) -> bool:
    """Return whether earlier findings explain a part of a saving, so that the finding only says where."""
    return finding.saving is not None and added <= (1.0 - MIN_PART_OF_BOUND) * finding.saving.median


def _is_claimed(finding: Finding, savings: StepSavings | None, repaired: Sequence[Finding]) -> bool:
    """Return whether earlier findings name most of the work of a place."""
    return savings is not None and savings.claimed_share(finding, repaired) >= MAX_EXPLAINED_PART


def _cause_of(
    i: int,
    findings: Sequence[Finding],
    levels: Mapping[str, int],
    savings: StepSavings | None,
    repaired: Sequence[Finding],
) -> int:
    """Return the index of the finding that says why finding `i` holds, or more exactly where; `i` if none does."""
    while True:
        place = findings[i]
        is_bound = levels.get(place.rule, 0) == REASONS.index(BOUND)
        causes = [
            j
            for j, finding in enumerate(findings)
            if levels.get(finding.rule, len(REASONS)) < levels.get(place.rule, 0)
            and not (finding.severity == "low" and place.severity in SERIOUS)
            and (
                finding.severity in SERIOUS or _size(finding) >= MIN_PART_OF_BOUND * _size(place)
                if is_bound
                else _explained_part(place, finding, savings, repaired) >= MIN_EXPLAINED_PART
            )
        ]
        if not causes:
            return i
        i = causes[_largest([findings[j] for j in causes], [_size(findings[j]) for j in causes])]


def _explained_part(place: Finding, cause: Finding, savings: StepSavings | None, repaired: Sequence[Finding]) -> float:
    """Return the part of what `place` saves that is gone once `cause` is repaired as well.

    Where nothing is replayed, both are taken for the same, as far as the smaller one reaches.
    """
    if savings is None or place.saving is None or cause.saving is None:
        return _size(cause) / _size(place) if _size(place) else 1.0
    (alone,), (left,) = (savings.shares([place], gone) for gone in (repaired, [*repaired, cause]))
    return 1.0 - left / alone if alone > 0.0 else 1.0


def _size(finding: Finding) -> float:
    """Return the saving of a finding, or without one the share that it affects."""
    return finding.weight if finding.saving is None else finding.saving.median


def _at_most(finding: Finding, severity: Severity) -> Finding:
    is_more = SEVERITIES.index(finding.severity) < SEVERITIES.index(severity)
    return replace(finding, severity=severity) if is_more else finding

"""Rank findings by the share of the step that they explain.

The step is a list of cells: idle time per cause, and busy time per phase, module and kernel. The sizes of the cells sum to 1. A
claim of a finding selects cells. A finding of weight `w` explains the same part of each of its cells: `w` divided by their sum,
at most all of it. A cell that several findings claim counts for the first one; a later finding adds only the part that is
larger than the part that the earlier ones explain. The next finding in the order is always the one that adds most, after the
causes that explain a part of it. Findings of at least `medium` severity precede the others, which are less
certain or save less. A finding that explains little of a trace, or that earlier ones mostly explain, is at most `low` there.

Where the steps of traces can be replayed, savings replace these shares: the next finding is the one without which the step would
save most once the findings before it are repaired (`savings.StepSavings`). The cells then show only what is not explained.

**Limits**: claims on whole cells are exact. Findings that claim only a part of a cell are assumed to claim the same part, so
their shares are lower bounds. A trace does not record the kernels of each module; the time of a kernel is then spread over the
modules in proportion to their times. Of several traces, the cells are the mean. Findings about peak memory have no cells: of
one rule the largest counts, and rules add up to at most the peak.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from profiler_kit.diagnosis.recorded import traces_of
from profiler_kit.diagnosis.savings import StepSavings
from profiler_kit.records.counts import is_inside
from profiler_kit.records.report import SEVERITIES, Finding, Report, Severity, TraceReport
from profiler_kit.records.traces import IDLE_CAUSES, IdleTime, TraceSummary, idle_by_cause

PEAK: Final = "peak"
# The claim "host": idle time in which the device waits for the host, not for another device or stream.
HOST_CAUSES: Final = frozenset(IDLE_CAUSES) - {"communication", "another stream"}
# Savings that differ by less than this are about the same: severity and weight decide.
TIE: Final = 0.05
# Why time goes, at which place of the program, in what kind of work: each follows an earlier one that explains a part of it.
REASONS: Final = ("cause", "site", "place")
# A change that saves less than a tenth of the step is rarely worth the effort. One that surely saves a fifth is never minor.
MIN_SAVING: Final = 0.1
SURE_SAVING: Final = 0.2
# A finding that says where time goes follows one that explains at least this part of it. An uncertain (low) one does not.
MIN_PART_OF_PLACE: Final = 0.25
# A finding that adds less to the explained share does not need attention of its own.
MIN_ADDED_SHARE: Final = 0.03
# Neither does one of which earlier findings explain more than this part, unless much of the step is left.
MAX_EXPLAINED_PART: Final = 0.5
LARGE_ADDED_SHARE: Final = 0.25
SERIOUS: Final = ("high", "medium")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A part of the step, of the size `share`. `cause` is the cause of idle time, and empty for busy time."""

    share: float
    cause: str = ""
    phase: str = ""
    module: str = ""
    kernel: str = ""

    def matches(self, claim: str) -> bool:
        """Return whether the cell is a part of what `claim` names."""
        pool, _, part = claim.partition(":")
        if pool == "host":
            return self.cause in HOST_CAUSES
        if pool == "idle":
            return self.cause != "" and part in ("", self.cause)
        if pool != "busy" or self.cause:
            return False
        kind, _, name = part.partition(":")
        if kind == "module":
            return is_inside(self.module, name)
        return not kind or (kind == "phase" and self.phase == name) or (kind == "kernel" and self.kernel == name)


class Account:
    """The explained part of each cell, and of the peak."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self._explained = [0.0] * len(cells)
        self._peak_by_rule: defaultdict[str, float] = defaultdict(float)

    def share(self, finding: Finding) -> float | None:
        """Return the share of the step (or peak) that `finding` adds to the explained one; None if it claims nothing known."""
        if not finding.claims:
            return None
        if PEAK in finding.claims:
            missing = 1.0 - math.fsum(self._peak_by_rule.values())
            return max(0.0, min(missing, finding.weight - self._peak_by_rule[finding.rule]))
        if not self.cells:
            return None
        return math.fsum((part - self._explained[i]) * self.cells[i].share for i, part in self._parts(finding))

    def add(self, finding: Finding) -> None:
        """Count `finding` as explained."""
        if PEAK in finding.claims:
            self._peak_by_rule[finding.rule] += self.share(finding) or 0.0
            return
        for i, part in self._parts(finding):
            self._explained[i] = part

    def _parts(self, finding: Finding) -> list[tuple[int, float]]:
        """Return the cells of which `finding` explains more than the findings before, with the part that it explains."""
        claimed = [i for i, cell in enumerate(self.cells) if any(cell.matches(claim) for claim in finding.claims)]
        size = math.fsum(self.cells[i].share for i in claimed)
        part = min(1.0, finding.weight / size) if size > 0 else 0.0
        return [(i, part) for i in claimed if part > self._explained[i]]

    def unexplained(self, *, idle: bool) -> float:
        """Return the share of the step that is idle (or busy) and that no finding explains."""
        parts = zip(self.cells, self._explained, strict=True)
        return math.fsum(cell.share * (1.0 - part) for cell, part in parts if (cell.cause != "") is idle)


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
    follows one that says why a part of it does. `savings`: the replay of the steps. Without it, the step is a sequence of its
    parts (`Account`), and removing a part saves its share.
    """
    if savings is not None:
        findings = [_with_saving(item, savings, is_cause=topics.get(item.rule) == "cause") for item in findings]
    with_claims = [finding for finding in findings if finding.claims]
    account = Account(step_cells(report, with_claims))
    levels = {rule: REASONS.index(topic) for rule, topic in topics.items() if topic in REASONS}
    alone = {finding.rule: account.share(finding) for finding in with_claims}
    ordered: list[Finding] = []
    for about_peak, is_serious in itertools.product((False, True), (True, False)):
        remaining = [
            finding
            for finding in with_claims
            if (PEAK in finding.claims) is about_peak and (finding.severity in SERIOUS) is is_serious
        ]
        while remaining:
            repaired = [finding for finding in ordered if finding.saving is not None]
            amounts = [_amount(finding, account, savings, repaired) for finding in remaining]
            i = _cause_of(_largest(remaining, amounts), remaining, levels)
            added = amounts[i]
            share = account.share(remaining[i]) if remaining[i].saving is None else added
            finding = replace(remaining[i], share=share)
            account.add(remaining.pop(i))
            is_place = levels.get(finding.rule, 0) > 0
            # of a report, the other findings may advise what was measured
            is_minor = isinstance(report, TraceReport) or (is_place and bool(account.cells))
            is_minor = is_minor and _is_minor(finding, added, alone[finding.rule] or 0.0)
            is_minor |= is_place and _is_explained(finding, added)
            ordered.append(_at_most(finding, "low") if is_minor else finding)
    ordered.sort(key=lambda finding: (PEAK in finding.claims, finding.severity not in SERIOUS))
    return (*ordered, *(finding for finding in findings if not finding.claims))


def _with_saving(finding: Finding, savings: StepSavings, *, is_cause: bool) -> Finding:
    """Return a finding about time with its saving, and not more severe than the saving allows; a sure cause is not low."""
    if not finding.claims or PEAK in finding.claims:
        return finding
    saving = savings.saving(finding)
    is_sure = saving.low >= SURE_SAVING
    most: Severity = "high" if is_sure else "medium" if saving.median >= MIN_SAVING else "low"
    severity: Severity = "medium" if is_sure and is_cause and finding.severity == "low" else finding.severity
    return _at_most(replace(finding, saving=saving, severity=severity), most)


def _amount(finding: Finding, account: Account, savings: StepSavings | None, repaired: Sequence[Finding]) -> float:
    """Return what `finding` adds to the findings before: a saving if it has one, otherwise a share."""
    if savings is None or finding.saving is None:
        return account.share(finding) or 0.0
    return savings.share(finding, repaired) if repaired else finding.saving.median


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
    return finding.saving is not None and added <= (1.0 - MIN_PART_OF_PLACE) * finding.saving.median


def _cause_of(i: int, findings: Sequence[Finding], levels: Mapping[str, int]) -> int:
    """Return the index of the finding that says why finding `i` holds, or more exactly where; `i` if none does."""
    while True:
        place = findings[i]
        causes = [
            j
            for j, finding in enumerate(findings)
            if levels.get(finding.rule, len(REASONS)) < levels.get(place.rule, 0)
            and _size(finding) >= MIN_PART_OF_PLACE * _size(place)
            and not (finding.severity == "low" and place.severity in SERIOUS)
        ]
        if not causes:
            return i
        i = causes[_largest([findings[j] for j in causes], [_size(findings[j]) for j in causes])]


def _size(finding: Finding) -> float:
    """Return the saving of a finding, or without one the share that it affects."""
    return finding.weight if finding.saving is None else finding.saving.median


def _at_most(finding: Finding, severity: Severity) -> Finding:
    is_more = SEVERITIES.index(finding.severity) < SEVERITIES.index(severity)
    return replace(finding, severity=severity) if is_more else finding


def account_of(report: Report | TraceReport) -> Account:
    """Return the account of the ranked findings of `report`."""
    account = Account(step_cells(report, report.findings))
    for finding in report.findings:
        account.add(finding)
    return account


def step_cells(report: Report | TraceReport, findings: Iterable[Finding]) -> tuple[Cell, ...]:
    """Return the cells of the step, as fine as the claims of `findings` need; empty where no times per step exist.

    They describe the baseline run, or the mean of all traces.
    """
    names = _ClaimedNames(claim for finding in findings for claim in finding.claims)
    parts = [list(_trace_cells(trace, names)) for trace in traces_of(report).traces]
    sizes: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)
    parts = [cells for cells in parts if any(cell.share > 0 for cell in cells)]
    for cells in parts:
        total = math.fsum(cell.share for cell in cells)
        for cell in cells:
            sizes[cell.cause, cell.phase, cell.module, cell.kernel] += cell.share / total / len(parts)
    return tuple(
        Cell(share=share, cause=cause, phase=phase, module=module, kernel=kernel)
        for (cause, phase, module, kernel), share in sizes.items()
        if share > 0
    )


class _ClaimedNames:
    """The modules and kernels that claims name. All other modules and kernels share one cell."""

    def __init__(self, claims: Iterable[str]) -> None:
        claims = tuple(claims)
        self.kernels = {claim.removeprefix("busy:kernel:") for claim in claims if claim.startswith("busy:kernel:")}
        modules = {claim.removeprefix("busy:module:") for claim in claims if claim.startswith("busy:module:")}
        self._modules = sorted(modules, key=len, reverse=True)

    def module(self, path: str) -> str:
        """Return the innermost claimed module that contains `path`."""
        return next((module for module in self._modules if is_inside(path, module)), "(other)")

    def kernel(self, name: str) -> str:
        """Return `name` if it is claimed."""
        return name if name in self.kernels else ""


def _trace_cells(trace: TraceSummary, names: _ClaimedNames) -> Iterator[Cell]:
    """Yield the cells of `trace`, in ns."""
    for cause, ns in idle_of(trace.idle, trace.idle_ns).items():
        yield Cell(share=ns, cause=cause)
    work = trace.kernels if trace.clock == "device" else trace.operators
    kernels = {item.name: item.kernel_ns for item in work if item.name in names.kernels}
    other_share = max(0.0, 1.0 - sum(kernels.values()) / trace.busy_ns) if trace.busy_ns else 1.0
    for phase, module, ns in _module_times(trace, names):
        for name, kernel_ns in kernels.items():
            yield Cell(share=ns * kernel_ns / trace.busy_ns, phase=phase, module=module, kernel=name)
        yield Cell(share=ns * other_share, phase=phase, module=module)


def idle_of(idle: Iterable[IdleTime], total_ns: int) -> dict[str, int]:
    """Return the idle time of each cause, longest first; time without an entry is of cause "unknown"."""
    causes = {str(cause): ns for cause, ns in idle_by_cause(idle).items()}
    if (missing_ns := total_ns - sum(causes.values())) > 0:
        causes["unknown"] = causes.get("unknown", 0) + missing_ns
    return dict(sorted(causes.items(), key=lambda item: -item[1]))


def _module_times(trace: TraceSummary, names: _ClaimedNames) -> Iterator[tuple[str, str, int]]:
    """Yield phase, claimed module and busy time; their sum is the busy time."""
    by_phase: defaultdict[str, int] = defaultdict(int)
    for timing in trace.modules:
        by_phase[timing.phase] += timing.kernel_ns
        yield timing.phase, names.module(timing.path), timing.kernel_ns
    for phase in trace.phases:
        yield phase.phase, "(other)", max(0, phase.kernel_ns - by_phase[phase.phase])
    attributed_ns = sum(max(phase.kernel_ns, by_phase[phase.phase]) for phase in trace.phases)
    yield "(unattributed)", "(other)", max(0, trace.busy_ns - attributed_ns)

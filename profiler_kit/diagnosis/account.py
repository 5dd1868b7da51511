"""The account of a step: its parts as shares that sum to 1, and how much of each part findings explain.

The step is a list of cells: idle time per cause, and busy time per phase, module and kernel. A claim of a finding selects cells.
A finding of weight `w` explains the same part of each of its cells: `w` divided by their sum, at most all of it. A cell that
several findings claim counts for the first one; a later finding adds only the part that is larger than the part that the
earlier ones explain.

**Limits**: claims on whole cells are exact. Findings that claim only a part of a cell are assumed to claim the same part, so
their shares are lower bounds. A trace does not record the kernels of each module; the time of a kernel is then spread over the
modules in proportion to their times. Of several traces, the cells are the mean. Findings about peak memory have no cells: of
one rule the largest counts, and rules add up to at most the peak.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from profiler_kit.diagnosis.step_work import StepWork, all_steps
from profiler_kit.records.claims import PEAK, Claim, Kind
from profiler_kit.records.counts import is_inside
from profiler_kit.records.report import Finding, Report, Symptom, TraceReport

_KINDS: Final[tuple[Kind, ...]] = ("phase", "module", "kernel")
_OTHER: Final = "(other)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A part of the step, of the size `share`. `cause` is the cause of idle time, and empty for busy time."""

    share: float
    cause: str = ""
    phase: str = ""
    module: str = ""
    kernel: str = ""


class Account:
    """The cells of a step, and the explained part of each of them and of the peak."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self._explained = [0.0] * len(cells)
        self._peak_by_rule: defaultdict[str, float] = defaultdict(float)

    @cached_property
    def causes(self) -> dict[str, float]:
        """The idle time of each cause, longest first."""
        causes: defaultdict[str, float] = defaultdict(float)
        for cell in self.cells:
            if cell.cause:
                causes[cell.cause] += cell.share
        return dict(sorted(causes.items(), key=lambda item: -item[1]))

    @property
    def idle(self) -> float:
        """The idle time."""
        return math.fsum(self.causes.values())

    @property
    def collectives(self) -> float:
        """The busy time in which only collectives run."""
        return math.fsum(cell.share for cell in self.cells if not cell.cause and cell.phase == "communication")

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
        """Count `finding` and its symptoms as explained."""
        if PEAK in finding.claims:
            self._peak_by_rule[finding.rule] += self.share(finding) or 0.0
            return
        items: tuple[Finding | Symptom, ...] = (finding, *finding.symptoms)
        for i, part in itertools.chain.from_iterable(map(self._parts, items)):
            self._explained[i] = max(part, self._explained[i])

    def _parts(self, finding: Finding | Symptom) -> list[tuple[int, float]]:
        """Return the cells of which `finding` explains more than the findings before, with the part that it explains."""
        claimed = self._claimed(finding.claims)
        size = math.fsum(self.cells[i].share for i in claimed)
        part = min(1.0, finding.weight / size) if size > 0 else 0.0
        return [(i, part) for i in claimed if part > self._explained[i]]

    def _claimed(self, claims: Sequence[Claim]) -> list[int]:
        """Return the cells that `claims` name. A claim is asked once per name: there are many more cells than names."""
        busy = [claim for claim in claims if claim.pool == "busy"]
        causes, phases, modules, kernels = (
            {name for name in {getattr(cell, kind) for cell in self.cells} if any(c.covers(kind, name) for c in asked)}
            for kind, asked in (("cause", claims), *((kind, busy) for kind in _KINDS))
        )
        return [
            i
            for i, cell in enumerate(self.cells)
            if (
                cell.cause in causes
                if cell.cause
                else cell.phase in phases or cell.module in modules or cell.kernel in kernels
            )
        ]

    def unexplained(self, *, idle: bool) -> float:
        """Return the share of the step that is idle (or busy) and that no finding explains."""
        parts = zip(self.cells, self._explained, strict=True)
        return math.fsum(cell.share * (1.0 - part) for cell, part in parts if (cell.cause != "") is idle)


def account_of(report: Report | TraceReport) -> Account:
    """Return the account of the ranked findings of `report`."""
    account = step_account(report, report.findings)
    for finding in report.findings:
        account.add(finding)
    return account


def step_account(report: Report | TraceReport, findings: Iterable[Finding] = ()) -> Account:
    """Return the account of the step, as fine as the claims of `findings` need; without cells where no times per step exist.

    It describes the baseline run, or the mean of all traces. Nothing is explained yet.
    """
    claims = [claim for finding in findings for claim in finding.claims]
    steps = [cells for step in all_steps(report) if (cells := _step_cells(step, claims))]
    shares: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)
    for cells in steps:
        total = math.fsum(cell.share for cell in cells)
        for cell in cells:
            shares[cell.cause, cell.phase, cell.module, cell.kernel] += cell.share / total / len(steps)
    return Account(
        [
            Cell(share=share, cause=cause, phase=phase, module=module, kernel=kernel)
            for (cause, phase, module, kernel), share in shares.items()
        ]
    )


def _step_cells(step: StepWork, claims: Sequence[Claim]) -> list[Cell]:
    """Return the cells of a step, in ns, without empty ones. Modules and kernels that no claim names share a cell."""
    named = {claim.name for claim in claims if claim.kind == "kernel"}
    work = step.trace.kernels if step.on_device else step.trace.operators
    kernels = {item.name: item.kernel_ns for item in work if item.name in named}
    kernels[""] = max(0, step.busy_ns - sum(kernels.values()))
    parts = {name: ns / step.busy_ns for name, ns in kernels.items()} if step.busy_ns else {"": 1.0}
    cells = [Cell(share=ns, cause=cause) for cause, ns in step.causes.items()]
    cells += [
        Cell(share=ns * part, phase=phase, module=module, kernel=kernel)
        for phase, module, ns in _module_times(step, claims)
        for kernel, part in parts.items()
        if ns
    ]
    return [cell for cell in cells if cell.share > 0]


def _module_times(step: StepWork, claims: Sequence[Claim]) -> Iterator[tuple[str, str, int]]:
    """Yield phase, innermost claimed module, and busy time; their sum is the busy time."""
    named = sorted({claim.name for claim in claims if claim.kind == "module"}, key=len, reverse=True)
    by_phase: defaultdict[str, int] = defaultdict(int)
    for timing in step.trace.modules:
        by_phase[timing.phase] += timing.kernel_ns
        module = next((module for module in named if is_inside(timing.path, module)), _OTHER)
        yield timing.phase, module, timing.kernel_ns
    for phase, ns in step.phase_ns.items():
        yield phase, _OTHER, max(0, ns - by_phase[phase])
    attributed_ns = sum(max(ns, by_phase[phase]) for phase, ns in step.phase_ns.items())
    yield "(unattributed)", _OTHER, max(0, step.busy_ns - attributed_ns)

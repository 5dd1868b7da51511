"""The report: everything known about a target, and the findings drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.records.counts import StaticCount
from profiler_kit.records.roofline import Roofline
from profiler_kit.records.runs import ConfigRun, Interval
from profiler_kit.records.target import TargetInfo
from profiler_kit.units import Unit

SCHEMA: Final = 1

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number behind a finding. `where` names the run, module or kernel it belongs to."""

    name: str
    value: int | float | str | bool
    unit: Unit
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Advice tried out: the configuration run, the step before and after, and what came of it."""

    config: str
    before_ns: Interval
    after_ns: Interval
    verdict: Literal["better", "worse", "same", "failed"]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found: plain sentences and the numbers that fired it. `config` names the run that tries the advice.

    `weight` is the share of the step (or of the peak) it is about, 0 to 1: it orders findings of one severity and topic.
    """

    rule: str
    severity: Severity
    title: str
    explanation: str
    advice: str
    evidence: tuple[Evidence, ...]
    paths: tuple[str, ...] = ()
    config: str | None = None
    trial: Trial | None = None
    weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Name and version of the program that wrote the report."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Target, static count, runs and findings. `static` is None where the model runs but can't be counted; `notes` says why.

    `roofline`: the step under each roof, the measured one first, for each run with times (or none was run).
    """

    schema: int
    tool: Tool
    created: str
    target: TargetInfo
    static: StaticCount | None
    runs: tuple[ConfigRun, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    roofline: tuple[Roofline, ...] = ()

    def baseline(self) -> ConfigRun | None:
        """The run others are compared with: the first that has samples and is no repetition."""
        return next((r for r in self.runs if r.failure is None and r.config.repeat_of is None), None)

    def run(self, name: str) -> ConfigRun | None:
        """The run of the configuration called `name`, failed or not."""
        return next((r for r in self.runs if r.config.name == name), None)

    def roofline_of(self, run: ConfigRun | None) -> Roofline | None:
        """The roofline with the times of `run` (None: the one without a run), measured rather than by datasheet."""
        name = run.config.name if run is not None else None
        return next((line for line in self.roofline if line.config == name), None)

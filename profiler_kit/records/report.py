"""The report: everything known about a target, and the findings drawn from it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Final, Literal, get_args

from profiler_kit.records.counts import StaticCount
from profiler_kit.records.laboratory import LaboratoryQuestions, ShapeSchedule, SweepTime
from profiler_kit.records.ranks import Ranks
from profiler_kit.records.roofline import Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval, Outcome
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import Unit

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)

# Of a trace's name: the handler's time stamp, and suffixes.
_ENDING: Final = re.compile(r"(\.[0-9]{10,})?(\.pt\.trace)?\.json(\.gz)?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number behind a finding. `where` names the run, module or kernel it belongs to."""

    name: str
    value: int | float | str | bool
    unit: Unit
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Advice tried out: the configuration run, the step before and after, and what came of it.

    `tried`: measured for this finding, before and after in interleaved fresh processes; else both come from the sweep.
    `gain_percent`: the share of the time that is saved, with its 95 % interval; per example where the two steps hold
    different numbers of them (`per_example`). `stated_percent`: the gain that the finding stated before, from the sweep, with
    its interval. Peaks, errors against
    float64 and repeatability are those of the two configurations' own runs; `same_bits`: their outputs are equal to the bit.
    """

    config: str
    before_ns: Interval
    after_ns: Interval
    verdict: Literal[Outcome, "failed"]
    note: str = ""
    tried: bool = False
    per_example: bool = False
    gain_percent: float | None = None
    gain_low_percent: float | None = None
    gain_high_percent: float | None = None
    stated_percent: float | None = None
    stated_low_percent: float | None = None
    stated_high_percent: float | None = None
    before_peak_bytes: int | None = None
    after_peak_bytes: int | None = None
    before_error: float | None = None
    after_error: float | None = None
    same_bits: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found: plain sentences and the numbers that fired it. `config` names the run that tries the advice.

    `config` may name a configuration that was not run yet: ``--try`` runs it. `weight` is the share of the step (or of the
    peak) it is about, 0 to 1: it orders findings of one severity and topic. `computed`: its gain is worked out, not measured.
    `tries`: all configurations that try the advice, in order of preference; `config` is the one whose trial is shown, else the
    first.
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
    computed: bool = False
    tries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Name and version of the program that wrote the report."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Saved, kind="report"):
    """Target, static count, runs and findings. `static` is None where the model runs but can't be counted; `notes` says why.

    `roofline`: the step under each roof, the measured one first, for each run with times (or none was run). `asked`: what
    the laboratory was asked beyond the configurations; `schedules`: runs over changing shapes; `sweep`: the runs' time.
    """

    tool: Tool
    created: str
    target: TargetInfo
    static: StaticCount | None
    runs: tuple[ConfigRun, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    roofline: tuple[Roofline, ...] = ()
    asked: LaboratoryQuestions | None = None
    schedules: tuple[ShapeSchedule, ...] = ()
    sweep: SweepTime | None = None

    def baseline(self) -> ConfigRun | None:
        """The run others are compared with: the first that has samples and is no repetition, a plain one where there is any."""
        found = [r for r in self.runs if r.failure is None and r.config.repeat_of is None]
        return next((r for r in found if r.config.is_plain), found[0] if found else None)

    def run(self, name: str) -> ConfigRun | None:
        """The run of the configuration called `name`, failed or not."""
        return next((r for r in self.runs if r.config.name == name), None)

    def roofline_of(self, run: ConfigRun | None) -> Roofline | None:
        """The roofline with the times of `run` (None: the one without a run), measured rather than by datasheet."""
        name = run.config.name if run is not None else None
        return next((line for line in self.roofline if line.config == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport(Saved, kind="trace_report"):
    """What `inspect` returns: a summary per trace, ranks beside each other where there are several, findings."""

    tool: Tool
    created: str
    traces: tuple[TraceSummary, ...]
    ranks: Ranks | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    def name(self, trace: TraceSummary) -> str:
        """What to call `trace` here: its file's name without what all traces' names end with, as little more as tells it apart.

        ``logs/run1/worker0.1623143089861.pt.trace.json.gz`` is worker0, run1/worker0, or the whole path.
        """
        return _names(tuple(one.file for one in self.traces)).get(trace.file, trace.file)


@lru_cache(maxsize=4)
def _names(files: tuple[str, ...]) -> dict[str, str]:
    """Each file's name among `files`."""
    by_folders = [[_short(file, folders) for file in files] for folders in (0, 1)]
    counts = [Counter(names) for names in by_folders]
    return {
        file: next((names[i] for names, count in zip(by_folders, counts, strict=True) if count[names[i]] == 1), file)
        for i, file in enumerate(files)
    }


def _short(file: str, folders: int) -> str:
    path = PurePath(file)
    stem = _ENDING.sub("", path.name) or path.name
    return "/".join((*path.parent.parts[len(path.parent.parts) - folders :], stem))

"""The report on a target, and the report on traces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Final, Literal, get_args

from profiler_kit.errors import UsageError
from profiler_kit.records.claims import Claim
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.experiments import ExperimentOptions, ShapeSchedule, SweepTime
from profiler_kit.records.notes import Note
from profiler_kit.records.ranks import Ranks
from profiler_kit.records.roofline import Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval, Outcome
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.traces import Saving, TraceSummary
from profiler_kit.records.verdict import Verdict
from profiler_kit.records.views import Views
from profiler_kit.units import Unit, percent, plural, text

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)

# The end of a trace's file name: the handler's time stamp, and suffixes.
_ENDING: Final = re.compile(r"(\.[0-9]{10,})?(\.pt\.trace)?\.json(\.gz)?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number behind a finding. `where` names the run, module or kernel; empty where it applies to the step."""

    name: str
    value: int | float | str | bool
    unit: Unit
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of advice: the configuration that applies it, and the step before and after.

    - `tried`: True if it was measured for this finding in interleaved fresh processes; False if both sides come from the sweep.
    - `before_ns`, `after_ns`: the median steps; of processes that took turns, their lower deciles or their trimmed means,
      averaged over the processes. `note`: limits of the comparison.
    - `gain_percent`: the share of the step time that is saved; `gain_low_percent`, `gain_high_percent`: its 95 % interval.
    - `per_example`: True if the two steps have different numbers of examples, so the gain is per example.
    - `stated_percent`: the gain from the sweep that the finding stated before the trial, with its interval.
    - `before_peak_bytes`, `after_peak_bytes`: peak allocated memory. `before_error`, `after_error`: errors against float64.
    - `same_bits`: True if the outputs of the two configurations are bitwise equal; None where not compared.
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


def severity_after(severity: Severity, trial: Trial | None) -> Severity:
    """Return the severity of a finding whose advice was tried: at most ``low`` if the best trial brought no gain."""
    without_gain = trial is not None and trial.verdict in ("same", "worse")
    return "low" if without_gain and severity in ("high", "medium") else severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The advice of a finding: the configuration that applies it, the line to paste (empty if there are none), and the action.

    `text`: the action in a few words, for people. The line follows it.
    """

    setting: str = ""
    code: str = ""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """What goes with the repair of a finding: another finding, or the place of the program that most of it belongs to.

    - `rule`: of the other finding; empty for a place. `title`: its title, or the place in words.
    - `claims`, `weight`: as of a finding. `contains`: the finding is a part of it, and all of it goes.
    """

    rule: str
    title: str
    claims: tuple[Claim, ...]
    weight: float
    contains: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a rule: sentences, and the numbers behind them.

    - `rule`: the rule's name. `severity`: `high`, `medium`, `low` or `info`.
    - `config`: the configuration that applies the advice. It may not have been run yet; ``--try`` runs it.
    - `tries`: all configurations that apply the advice, in order of preference. `config` is the one whose trial is shown, or
      the first.
    - `trial`: the outcome of the advice; None where it was not measured.
    - `weight`: the share of the step (or of the peak) that is affected, 0 to 1. It sorts findings of one severity and topic.
    - `remedy`: the change that the advice asks for; None without advice, and in reports of earlier versions.
    - `computed`: True if the gain is computed, not measured.
    - `paths`: the modules that the finding is about.
    - `claims`: the parts of the step that the finding explains. Empty if it explains no time and no memory.
    - `share`: the share of the step (of the peak if it claims that) that the finding explains and that no finding before it
      explains; None where `claims` is empty, or where the report has no times. With a replay, it is what the step would
      save once the findings before it are repaired.
    - `keeps`: the part of the claimed time that is left after the repair: half of it, where a type of half the size is used.
    - `saving`: what the step would save once the finding is repaired, from the replay of its trace; None without a trace.
    - `symptoms`: what the same repair removes. If one of them contains the finding, `saving` is that of the whole.
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
    claims: tuple[Claim, ...] = ()
    share: float | None = None
    remedy: Remedy | None = None
    saving: Saving | None = None
    keeps: float = 0.0
    symptoms: tuple[Symptom, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Name and version of the program that wrote the report."""

    name: str
    version: str


def baseline_of(runs: Sequence[ConfigRun]) -> ConfigRun | None:
    """The run that others are compared with: the first successful one that is not a repeat, preferably without settings."""
    successful = [run for run in runs if run.failure is None and run.config.repeat_of is None]
    return next((run for run in successful if run.config.is_plain), successful[0] if successful else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Views, Saved, kind="report"):
    """The report of `analyze` and `count`: target, static count, runs and findings.

    - `static`: the counts; None where the model runs but cannot be counted. `notes` then gives the reason.
    - `runs`: one entry per configuration, including failed ones.
    - `roofline`: the step under each roof, measured peaks first, for each run with times (or once without a run).
    - `asked`: the options of `analyze` beyond the configurations. `schedules`: runs over changing shapes. `sweep`: the duration
      of all runs.
    - `verdict`: the report in a few sentences, and what to do; None in reports of earlier versions.
    - `ranks`: the traces of all ranks of the baseline, in a job of several; None otherwise.
    """

    tool: Tool
    created: str
    target: TargetInfo
    static: StaticCount | None
    runs: tuple[ConfigRun, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[Note, ...] = ()
    roofline: tuple[Roofline, ...] = ()
    asked: ExperimentOptions | None = None
    schedules: tuple[ShapeSchedule, ...] = ()
    sweep: SweepTime | None = None
    verdict: Verdict | None = None
    ranks: TraceReport | None = None

    def baseline(self) -> ConfigRun | None:
        """The run that others are compared with: the first successful one that is not a repeat, preferably without settings."""
        return baseline_of(self.runs)

    @property
    def revision(self) -> str:
        """The revision or saved report that the gate compares with; empty elsewhere."""
        return next((note.text for note in self.notes if note.code == "revision"), "")

    def run(self, name: str) -> ConfigRun | None:
        """The run of the configuration `name`, successful or failed; None where there is none."""
        return next((r for r in self.runs if r.config.name == name), None)

    def __repr__(self) -> str:
        run = self.baseline()
        step = "training step" if self.target.mode == "train" else "step"
        parts = [f"{text(run.step_ns.median, 'ns')} per {step}"] if run is not None and run.step_ns is not None else []
        if self.static is not None:
            parts.append(f"{text(self.static.step.flops, 'flops')} FLOPs")
        parts += [plural(len(self.runs), "run")] if self.runs else []
        return f"<Report {self.target.name}: {', '.join([*parts, plural(len(self.findings), 'finding')])}>"

    def roofline_of(self, run: ConfigRun | None) -> Roofline | None:
        """The roofline with the times of `run` (None: the one without a run), preferably by measured peaks."""
        name = run.config.name if run is not None else None
        return next((line for line in self.roofline if line.config == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport(Views, Saved, kind="trace_report"):
    """The report of `inspect`: a summary per trace, the ranks where there are several, findings, and the verdict."""

    tool: Tool
    created: str
    traces: tuple[TraceSummary, ...]
    ranks: Ranks | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None

    def __repr__(self) -> str:
        findings = plural(len(self.findings), "finding")
        if len(self.traces) != 1:
            ranks = f"{plural(len(self.ranks.ranks), 'rank')}, " if self.ranks is not None else ""
            return f"<TraceReport {plural(len(self.traces), 'trace')}: {ranks}{findings}>"
        trace = self.traces[0]
        busy = f"{percent(trace.busy_share)} busy, " if trace.busy_share is not None else ""
        return f"<TraceReport {self.name(trace)}: {text(trace.span_ns, 'ns')}, {busy}{findings}>"

    def index(self, trace: str | int | None) -> int:
        """The index of a trace by its index, display name or file; None selects the first. Raises: UsageError for no match."""
        if trace is None:
            return 0
        if isinstance(trace, int) and -len(self.traces) <= trace < len(self.traces):
            return trace % len(self.traces)
        names = [self.name(summary) for summary in self.traces]
        for labels in (names, [summary.file for summary in self.traces]):
            if trace in labels:
                return labels.index(str(trace))
        raise UsageError(f"no trace {trace!r}", hint=f"choose one of: {', '.join(names)}")

    def name(self, trace: TraceSummary) -> str:
        """The display name of `trace`: its file name without common endings, with a folder or the full path where names collide.

        ``logs/run1/worker0.1623143089861.pt.trace.json.gz`` becomes worker0, run1/worker0, or the full path.
        """
        return _names(tuple(summary.file for summary in self.traces)).get(trace.file, trace.file)


@lru_cache(maxsize=4)
def _names(files: tuple[str, ...]) -> dict[str, str]:
    """The display name of each file."""
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

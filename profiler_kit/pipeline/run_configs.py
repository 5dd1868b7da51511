"""Runs a program once for each configuration, in processes of its own, and compares them in one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.errors import ReportError, TargetError
from profiler_kit.pipeline.loop_report import LoopReport
from profiler_kit.pipeline.reports import new_report, with_findings
from profiler_kit.pipeline.run_traces import attribute_run_trace
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.notes import Note
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.serde import read_report

FOLDER: Final = "configs"  # of the reports of single configurations
LOG: Final = "log.txt"
PREFIX: Final = "profiler_kit: "  # of the messages of `run`


def run_configs(
    configs: Sequence[RunConfig],
    command: Callable[[str, Path], Sequence[str]],
    out: Path,
    on_line: Callable[[str], None],
) -> LoopReport:
    """The report on the program under each of `configs`. A run that fails is a result.

    `command`: the words after ``profiler-kit`` that run the program under a configuration, with its report in a folder.
    `on_line` receives the lines that the program prints.

    Raises TargetError if every run fails.
    """
    runs: list[ConfigRun] = []
    base: Report | None = None
    notes: list[Note] = []
    for config in configs:
        name = config.name
        if base is not None and base.runs[0].config.enabled is None:
            notes.append(Note(subject=name, code="skipped", text="cuDNN flags have no effect on this device."))
            continue
        folder = out / FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").unlink(missing_ok=True)
        outcome = process.run(process.own_command(*command(name, folder)), log=folder / LOG, on_line=on_line)
        try:
            report = read_report(folder / "report.json")
        except (ReportError, OSError):
            failure = Failure(kind="error", message=_reason(outcome), log_tail=outcome.log_tail)
            runs.append(ConfigRun(config=config, failure=failure))
            continue
        base = base or report
        notes += [replace(note, subject=note.subject or name) for note in report.notes]
        runs += report.runs
    if base is None:
        failed = next(run.failure for run in runs if run.failure is not None)
        raise TargetError(
            failed.message, where=str(out / FOLDER), hint=f"read {LOG} in the folder of each configuration"
        )
    return _combined(base, runs, notes)


def _reason(outcome: process.Outcome) -> str:
    """Why a program left no report: its own last line on stderr if it failed, else what `run` says."""
    lines = [line.strip() for line in outcome.log_tail.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(PREFIX)]
    if outcome.signal_name is None and not outcome.ok and own:
        return own[-1]
    return lines[-1].removeprefix(PREFIX) if lines and outcome.ok else f"ended by {outcome.ending}"


def _combined(base: Report, runs: Sequence[ConfigRun], notes: Sequence[Note]) -> LoopReport:
    """The report on all `runs`, with the target and the count of `base`, and the timeline of its first run."""
    traced = {
        run.config.name: attribute_run_trace(run, Path(run.trace), whole_marks=True)
        for run in runs
        if run.trace is not None and Path(run.trace).exists()
    }
    models = {name: result.model for name, result in traced.items() if result.model is not None}
    report = new_report(base.target, base.static, runs=runs, notes=dict.fromkeys(notes))
    report = with_findings(report, base.static, lambda bare: bare, models)
    return LoopReport(report, next((result.timeline for result in traced.values()), None))


def apply_flags(config: RunConfig) -> tuple[str, ...]:
    """Set the cuDNN flags of `config` in this process. Returns those that had another value, as ``name=value``."""
    from profiler_kit.worker import environment

    before = environment.flags_snapshot()
    environment.apply_flags(config)
    return environment.flags_changed(environment.flags_snapshot(), before)

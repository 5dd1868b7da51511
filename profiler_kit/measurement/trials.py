"""Trials: runs the findings' advice and records the gain.

Before and after are measured in fresh processes, interleaved (A B C, C B A), so that drift affects both sides equally.
`statistics.trials` computes the verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiler_kit.errors import UsageError
from profiler_kit.measurement.session import Session, measure_interleaved
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.notes import plain_notes
from profiler_kit.records.report import Finding, Report, Trial, severity_after
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import is_undecided, pair_trial

# A trial of a slow model takes a minute or two. Findings are sorted by importance.
MAX_TRIALS: Final = 8
# A trial may lead to new advice: with bfloat16, for example, launches may limit the step, and CUDA graphs then help.
MAX_ROUNDS: Final = 2

ReadConfig = Callable[[str], RunConfig | None]


def run_trials(
    session: Session, report: Report, read_config: ReadConfig, folder: Path, rebuild_report: Callable[[], Report]
) -> Report:
    """`report` with a trial in each finding whose advice was run; unchanged where no advice can be run.

    `read_config` returns the configuration of a name, or None where it does not apply. `rebuild_report` returns a new report of
    all runs in `session`, with findings; the trials add configurations that were not run before.
    """
    baseline = report.baseline()
    if baseline is None:
        return report
    stated: dict[tuple[str, str], Trial] = {}
    trials: dict[str, Trial] = {}
    examined: set[str] = set()
    for _ in range(MAX_ROUNDS):
        new = {(finding.rule, finding.trial.config): finding.trial for finding in report.findings if finding.trial}
        stated = new | stated
        configs = _advised_configs(report, read_config, session, examined)
        if not configs or session.interrupted:
            break
        visits = measure_interleaved(session, [baseline.config, *configs], folder, purpose="trial")
        undecided = [config for config in configs if is_undecided(_trial(report, baseline, config, visits))]
        if undecided and not session.interrupted:
            more = measure_interleaved(session, [baseline.config, *undecided], folder, purpose="repeated trial")
            visits = {name: [*runs, *more.get(name, ())] for name, runs in visits.items()}
        report = rebuild_report()
        for config in configs:
            trial = _trial(report, baseline, config, visits)
            if trial is not None:
                trials[config.name] = trial
    if not trials:
        session.on_progress("no trials: no finding advises a configuration")
    # `report` lacks the notes of a last round that ran no trial
    notes = (*report.notes, *(note for note in plain_notes(session.notes) if note not in report.notes))
    findings = tuple(_with_trial(finding, trials, stated) for finding in report.findings)
    return replace(report, findings=findings, notes=notes)


def _advised_configs(report: Report, read_config: ReadConfig, session: Session, examined: set[str]) -> list[RunConfig]:
    """The advised configurations, each once: the first advice of every finding, then the second advice, and so on.

    Advice that does not apply, or exceeds the number of trials, is skipped with a note. `examined` collects all names.
    """
    baseline = report.baseline()
    by_rank = itertools.zip_longest(*(_advised_names(finding) for finding in report.findings))
    names = dict.fromkeys(name for rank in by_rank for name in rank if name is not None)
    configs: dict[str, RunConfig] = {}
    excess: list[str] = []
    for name in names:
        if name in examined or (baseline is not None and name == baseline.config.name):
            continue
        examined.add(name)
        try:
            config = read_config(name)
        except UsageError as error:
            session.note(f"Trial skipped: {error.message}.")
            continue
        if config is None or config.name in configs:
            continue
        if len(configs) == MAX_TRIALS:
            excess.append(name)
        else:
            configs[config.name] = config
    if excess:
        session.note(f"Trials skipped: {', '.join(excess)}. At most {MAX_TRIALS} run at a time; add these with --also.")
    return list(configs.values())


def _advised_names(finding: Finding) -> tuple[str, ...]:
    """The configurations that a finding advises, in order of preference."""
    return finding.tries or ((finding.config,) if finding.config is not None else ())


def _trial(report: Report, baseline: ConfigRun, config: RunConfig, visits: dict[str, list[ConfigRun]]) -> Trial | None:
    before, after = visits.get(baseline.config.name, ()), visits.get(config.name, ())
    return pair_trial(
        config, before, after, noise_of(report), (report.run(baseline.config.name), report.run(config.name))
    )


def _with_trial(finding: Finding, trials: dict[str, Trial], stated: dict[tuple[str, str], Trial]) -> Finding:
    """`finding` with the trial of its first advice that was run, and with the gain that it stated before."""
    advised = [trials[name] for name in _advised_names(finding) if name in trials]
    if not advised:
        return finding
    trial = advised[0]
    best = next((option for option in advised if option.verdict not in ("same", "worse")), trial)
    earlier = stated.get((finding.rule, trial.config))
    if earlier is not None:
        trial = replace(
            trial,
            stated_percent=earlier.gain_percent,
            stated_low_percent=earlier.gain_low_percent,
            stated_high_percent=earlier.gain_high_percent,
        )
    return replace(finding, trial=trial, severity=severity_after(finding.severity, best))

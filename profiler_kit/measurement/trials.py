"""The findings' advice, run, and what it gained written down.

Before and after are measured in fresh processes, interleaved (A B C, C B A), so that what drifts meanwhile weighs on
both alike. `statistics.trials` says what came of them.
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
from profiler_kit.records.report import Finding, Report, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.trials import is_undecided, pair_trial

# Trials cost a minute or two each on a slow model; findings come in the order of what is at stake.
MOST_TRIALS: Final = 8
# What is tried may leave advice of its own: what computes in bfloat16 waits for its launches, and graphs then help.
TURNS: Final = 2

Read = Callable[[str], RunConfig | None]


def try_advice(session: Session, report: Report, read: Read, folder: Path, explained: Callable[[], Report]) -> Report:
    """`report`, explained anew, with the advice of its findings tried; as it is where there is none that can be run.

    `read` gives the configuration of a name, None where it means nothing here. `explained` makes the report of all that
    `session` holds, to which the trials add the configurations that were not run yet.
    """
    baseline = report.baseline()
    if baseline is None:
        return report
    stated: dict[tuple[str, str], Trial] = {}
    found: dict[str, Trial] = {}
    seen: set[str] = set()
    for _ in range(TURNS):
        stated = {(one.rule, one.trial.config): one.trial for one in report.findings if one.trial is not None} | stated
        configs = _advised(report, read, session, seen)
        if not configs or session.interrupted:
            break
        visits = measure_interleaved(session, [baseline.config, *configs], folder, purpose="trying")
        unsure = [config for config in configs if is_undecided(_trial(report, baseline, config, visits))]
        if unsure and not session.interrupted:
            more = measure_interleaved(session, [baseline.config, *unsure], folder, purpose="trying once more")
            visits = {name: [*runs, *more.get(name, ())] for name, runs in visits.items()}
        report = explained()
        for config in configs:
            made = _trial(report, baseline, config, visits)
            if made is not None:
                found[config.name] = made
    if not found:
        session.on_progress("nothing to try: no finding advises a configuration")
    notes = (*report.notes, *(note for note in session.notes if note not in report.notes))  # of a turn that ran nothing
    findings = tuple(_with_trial(finding, found, stated) for finding in report.findings)
    return replace(report, findings=findings, notes=notes)


def _advised(report: Report, read: Read, session: Session, seen: set[str]) -> list[RunConfig]:
    """What the findings advise, each once: every finding's first advice, the most at stake first, then their further ones.

    What means nothing here is left out with a note, and so is what would be too many; `seen` holds all that was looked at.
    """
    baseline = report.baseline()
    by_rank = itertools.zip_longest(*(_names(finding) for finding in report.findings))
    names = dict.fromkeys(name for rank in by_rank for name in rank if name is not None)
    found: dict[str, RunConfig] = {}
    left: list[str] = []
    for name in names:
        if name in seen or (baseline is not None and name == baseline.config.name):
            continue
        seen.add(name)
        try:
            config = read(name)
        except UsageError as error:
            session.note(f"Not tried: {error.message}.")
            continue
        if config is None or config.name in found:
            continue
        if len(found) == MOST_TRIALS:
            left.append(name)
        else:
            found[config.name] = config
    if left:
        session.note(
            f"Not tried, as {MOST_TRIALS} trials are enough at a time: {', '.join(left)}. Name them in --also."
        )
    return list(found.values())


def _names(finding: Finding) -> tuple[str, ...]:
    """The configurations that a finding advises, the best first."""
    return finding.tries or ((finding.config,) if finding.config is not None else ())


def _trial(report: Report, baseline: ConfigRun, config: RunConfig, visits: dict[str, list[ConfigRun]]) -> Trial | None:
    before, after = visits.get(baseline.config.name, ()), visits.get(config.name, ())
    return pair_trial(config, before, after, (report.run(baseline.config.name), report.run(config.name)))


def _with_trial(finding: Finding, found: dict[str, Trial], stated: dict[tuple[str, str], Trial]) -> Finding:
    """`finding` with the trial of the first of its advices that was tried, and what it had stated before."""
    made = next((found[name] for name in _names(finding) if name in found), None)
    if made is None:
        return finding
    earlier = stated.get((finding.rule, made.config))
    if earlier is not None:
        made = replace(
            made,
            stated_percent=earlier.gain_percent,
            stated_low_percent=earlier.gain_low_percent,
            stated_high_percent=earlier.gain_high_percent,
        )
    return replace(finding, trial=made)

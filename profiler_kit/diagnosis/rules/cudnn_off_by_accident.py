"""cuDNN turned off, or its flags set, by the target's own file."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnosis.advice import AdviceTrials
from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import join_list, join_sentences, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.report import Evidence, Finding, Report, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent

DOC = """
Fires when the target's file turns cuDNN off: it sets `cudnn.enabled = False`, or it calls `cudnn.flags(...)` without
`enabled`, whose default is False there, so that cuDNN is off inside the block.

- `high`: a run without cuDNN was measured and is significantly slower.
- `medium`: otherwise.
- `info`: the file sets other flags, such as `benchmark` or `deterministic`. The finding names the configuration that matches
  the file, if one was measured.

The call to `cudnn.flags` is found by reading the file, not by running it, so a step may never reach it. Flags that the file
sets are restored before measuring, because each configuration sets its own.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding about cuDNN that is off, and at most one about other flags that the file sets."""
    flags, lines = report.target.cudnn_flags, report.target.cudnn_off_lines
    off_flags = [flag for flag in flags if flag.name == "enabled" and flag.value == "False"]
    if off_flags or lines:
        yield _off_finding(report, bool(off_flags), lines)
    other_flags = [flag for flag in flags if flag not in off_flags]
    run = report.baseline()
    if other_flags and (run is None or run.clock == "kernel"):  # a CPU has no cuDNN
        yield _other_flags_finding(report, other_flags)


def _off_finding(report: Report, is_set: bool, lines: tuple[int, ...]) -> Finding:
    """The finding that cuDNN is off: by assignment (`is_set`), or inside the `cudnn.flags` blocks at `lines`."""
    without = next((run for run in plain_runs(report) if run.config.enabled is False), None)
    base = report.baseline()
    base = base if base is not None and base.config.enabled is not False else None
    trial = sweep_trial(without, base, noise_of(report)) if without is not None and base is not None else None
    is_slower = trial is not None and trial.verdict == "better"
    where = f"line{'' if len(lines) == 1 else 's'} {join_list([str(line) for line in lines])}"
    return new_finding(
        severity="high" if is_slower else "medium",
        title="cuDNN is off: the target's file sets cudnn.enabled = False"
        if is_set
        else f"cuDNN is off inside cudnn.flags() without enabled=True: {report.target.spec}, {where}",
        explanation=join_sentences(
            f"The file also calls cudnn.flags() without enabled=True in {where}." if lines and is_set else "",
            "cudnn.flags() has the default enabled=False, so its block runs PyTorch's own convolutions."
            if lines
            else "",
            "The flag was restored before measuring: only configurations that turn cuDNN off themselves run without it."
            if is_set
            else "The measured steps run the file unchanged: steps that reach the block run it without cuDNN.",
            _price(without, base, trial),
        ),
        advice="Remove the line, or pass enabled=True: {code}.",
        code="torch.backends.cudnn.flags(enabled=True, ...)",
        evidence=(
            *evidence_of("set by the file", ("cudnn.enabled", "False" if is_set else None, "text")),
            *(Evidence(name="cudnn.flags without enabled", value=f"line {line}", unit="text") for line in lines),
        ),
        trials=AdviceTrials(trial=trial),
        weight=(trial.gain_percent or 0.0) / 100.0 if trial is not None else 0.0,
    )


def _price(without: ConfigRun | None, base: ConfigRun | None, trial: Trial | None) -> str:
    if trial is None or without is None or base is None or trial.gain_percent is None:
        return "The cost is unknown: the report does not have both a run without cuDNN and a run with it."
    if trial.verdict == "same":
        return f"{quoted_name(without)} and {quoted_name(base)} take the same time, within the noise."
    gain = trial.gain_percent / 100.0
    return f"{quoted_name(base)} takes {percent(abs(gain))} {'less' if gain > 0 else 'more'} time than {quoted_name(without)}."


def _other_flags_finding(report: Report, flags: list[NamedValue]) -> Finding:
    assignments = join_list([f"cudnn.{flag.name} = {flag.value}" for flag in flags])
    run = next(
        (r for r in plain_runs(report) if all(str(getattr(r.config, f.name, None)) == f.value for f in flags)), None
    )
    return new_finding(
        severity="info",
        title=f"The target's file sets {assignments}; each configuration overrides it",
        explanation=join_sentences(
            "Flags that the file set on import were restored before measuring.",
            f"Unchanged, the file runs like {quoted_name(run)}." if run is not None else "",
        ),
        advice="Set cuDNN's flags in the training script. In the model's file they also affect every program that imports it.",
        evidence=(
            Evidence(name="flags set by the file", value=plural(len(flags), "flag"), unit="text"),
            *(Evidence(name=f"cudnn.{flag.name}", value=flag.value, unit="text") for flag in flags),
        ),
    )


RULE = Rule("cudnn_off_by_accident", DOC, check, "reading", needs_runs=False)

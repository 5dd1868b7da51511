"""cuDNN switched off, or its flags set, by the target's own file."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnosis.advice import Attempt
from profiler_kit.diagnosis.pairs import plain
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.words import listing, plural, quoted, sentences
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.report import Evidence, Finding, Report, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent

DOC = """
The target's file sets `cudnn.enabled = False`, or calls `cudnn.flags(...)` without `enabled`, whose default is False, so that
cuDNN is off inside the block: `high` where the run without cuDNN was measured and is surely slower, otherwise `medium`. The call
is found by reading the file, not by running it, so it may never be reached. Flags that the file sets are put back for the
measurement, as each configuration sets its own: where it sets `benchmark` or `deterministic`, that is said (`info`), with the
configuration that is what the file would do.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires at most once for cuDNN that is off, and once for other flags that the file sets."""
    flags, lines = report.target.cudnn_flags, report.target.cudnn_off_lines
    off = [flag for flag in flags if flag.name == "enabled" and flag.value == "False"]
    if off or lines:
        yield _off(report, bool(off), lines)
    others = [flag for flag in flags if flag not in off]
    if others:
        yield _others(report, others)


def _off(report: Report, is_set: bool, lines: tuple[int, ...]) -> Finding:
    without = next((run for run in plain(report) if run.config.enabled is False), None)
    base = report.baseline()
    base = base if base is not None and base.config.enabled is not False else None
    tried = sweep_trial(without, base, noise_of(report)) if without is not None and base is not None else None
    grave = tried is not None and tried.verdict == "better"
    where = f"line{'' if len(lines) == 1 else 's'} {listing([str(line) for line in lines])}"
    return RULE.finding(
        severity="high" if grave else "medium",
        title="The target's file sets cudnn.enabled = False"
        if is_set
        else f"{report.target.spec}, {where}: cudnn.flags() without enabled=True turns cuDNN off inside its block",
        explanation=sentences(
            "The default of that argument is enabled=False, so the block runs PyTorch's own convolutions."
            if lines
            else "",
            f"It is called so in {where}." if lines and is_set else "",
            "The flag was put back for the measurement: the configurations here run with cuDNN, where they say so."
            if is_set
            else "The measured steps run what the file says: where they reach that block, they run it without cuDNN.",
            _price(without, base, tried),
        ),
        advice="Remove the line, or pass enabled=True: torch.backends.cudnn.flags(enabled=True, ...).",
        evidence=(
            *known("set by the file", ("cudnn.enabled", "False" if is_set else None, "text")),
            *(Evidence(name="cudnn.flags without enabled", value=f"line {line}", unit="text") for line in lines),
        ),
        attempt=Attempt(trial=tried),
        weight=(tried.gain_percent or 0.0) / 100.0 if tried is not None else 0.0,
    )


def _price(without: ConfigRun | None, base: ConfigRun | None, tried: Trial | None) -> str:
    if tried is None or without is None or base is None or tried.gain_percent is None:
        return "What it costs is not known: no run without cuDNN stands beside one with it."
    if tried.verdict == "same":
        return f"{quoted(without)} and {quoted(base)} take the same time, as far as can be told."
    more = tried.gain_percent / 100.0
    return f"{quoted(base)} takes {percent(abs(more))} {'less' if more > 0 else 'more'} time than {quoted(without)}."


def _others(report: Report, flags: list[NamedValue]) -> Finding:
    said = listing([f"cudnn.{flag.name} = {flag.value}" for flag in flags])
    run = next((r for r in plain(report) if all(str(getattr(r.config, f.name, None)) == f.value for f in flags)), None)
    return RULE.finding(
        severity="info",
        title=f"The target's file sets {said}; each configuration here sets its own",
        explanation=sentences(
            "What the file set while it was imported was put back before anything was measured.",
            f"Run as it is, it does what {quoted(run)} does." if run is not None else "",
        ),
        advice="Set cuDNN's flags in the training script, not in the file of the model: whoever imports it gets them too.",
        evidence=(
            Evidence(name="flags set by the file", value=plural(len(flags), "flag"), unit="text"),
            *(Evidence(name=f"cudnn.{flag.name}", value=flag.value, unit="text") for flag in flags),
        ),
    )


RULE = Rule("cudnn_off_by_accident", DOC, check, "reading")

"""Precision flags that have no effect, contradict each other, or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import is_float32
from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import join_list, join_sentences, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.timing import ratio, tf32_convolution_ns
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

LEGACY: Final = "cudnn.allow_tf32"
PER_KIND: Final = "cudnn.conv.fp32_precision"
UNREADABLE: Final = "unreadable"  # prefix of the recorded value of a flag that raised when it was read
OVERRIDE: Final = "NVIDIA_TF32_OVERRIDE"

DOC = f"""
Fires if precision flags have no effect, contradict each other, or cannot be read. It compares the flags with the names of the
kernels, which show the arithmetic that was used.

- `high`: TF32 is off for convolutions (by the configuration, `{LEGACY}` or `{PER_KIND}`), but convolution
  kernels compute in TF32. Example: torch 2.11 after `cudnn.fp32_precision = "ieee"`.
- `medium`: the configuration turns TF32 off, but `{PER_KIND}` still reads `tf32`. The two ways to set the
  precision disagree.
- `low`: the environment variable `{OVERRIDE}=0` turns off TF32 that the flags allow.
- `low`: a precision flag raises when it is read. Example: torch 2.13 after both ways to set the precision were used.

One such kernel is enough; the rule has no threshold.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding of each kind."""
    runs = plain_runs(report)
    if is_float32(report):
        ineffective = [run for run in runs if _tf32_off_by(run) is not None and tf32_convolution_ns(run) > 0]
        if ineffective:
            yield _ineffective_flag(ineffective)
        contradicting = [run for run in runs if run.config.allow_tf32 is False and _value(run, PER_KIND) == "tf32"]
        if contradicting:
            yield _contradicting_flags(contradicting)
        overridden = [run for run in runs if run.config.allow_tf32 is True and _value(run, OVERRIDE) == "0"]
        if overridden:
            yield _overridden_flag(overridden)
    unreadable = [(run, name) for run in runs for name in _unreadable_flags(run)]
    if unreadable:
        yield _unreadable_flag(unreadable)


def _value(run: ConfigRun, name: str) -> str | None:
    """Return the value of a flag or an environment variable in the run; None if it was not recorded."""
    settings = (*run.environment.flags, *run.environment.variables) if run.environment is not None else ()
    return next((item.value for item in settings if item.name == name), None)


def _tf32_off_by(run: ConfigRun) -> str | None:
    """Return the setting that turns TF32 off for convolutions in this run, in words; None without one."""
    if run.config.allow_tf32 is False:
        return "the configuration"
    for name, value in ((PER_KIND, "ieee"), (LEGACY, "False")):
        if _value(run, name) == value:
            return f"{name} = {value}"
    return None


def _unreadable_flags(run: ConfigRun) -> tuple[str, ...]:
    """Return the precision flags that raised when they were read; flags that this version of torch lacks do not count."""
    names = (LEGACY, PER_KIND, "cudnn.rnn.fp32_precision", "cuda.matmul.allow_tf32")
    values = ((name, _value(run, name) or "") for name in names)
    return tuple(name for name, value in values if value.startswith(UNREADABLE) and "no attribute" not in value)


def _ineffective_flag(runs: list[ConfigRun]) -> Finding:
    first = runs[0]
    tf32_ns = tf32_convolution_ns(first)
    share = ratio(tf32_ns, first.device_ns)
    of_device = f" ({percent(share)} of the device time)" if share is not None else ""
    return new_finding(
        severity="high",
        title=f"TF32 is off in {join_list([quoted_name(run) for run in runs])}, but convolutions compute in TF32",
        explanation=f"In {quoted_name(first)}, TF32 kernels take {text(tf32_ns, 'ns')} per step{of_device}, although "
        f"{_tf32_off_by(first)} turns TF32 off. Kernel names show the arithmetic that was used; a flag shows only the request.",
        advice="Do not treat these runs as float32. Set {code} before the first convolution. Search for other code that sets the "
        f"precision, and check the variable {OVERRIDE}.",
        code="torch.backends.cudnn.allow_tf32 = False",
        evidence=tuple(
            Evidence(name="TF32 convolution kernels", value=tf32_convolution_ns(run), unit="ns", where=run.config.name)
            for run in runs
        ),
        paths=(
            item.path
            for item in first.modules
            if any(k.math == "tf32" and k.family.startswith("conv") for k in item.kernels)
        ),
        weight=1.0,
    )


def _contradicting_flags(runs: list[ConfigRun]) -> Finding:
    return new_finding(
        severity="medium",
        title=f"TF32 is off in {join_list([quoted_name(run) for run in runs])}, but {PER_KIND} reads tf32",
        explanation="torch has two ways to set the precision of convolutions. The configuration uses the older one, and the "
        "newer one still allows TF32.",
        advice=f"Set only one of torch.backends.{LEGACY} and torch.backends.{PER_KIND}, then read the other to check it.",
        evidence=tuple(Evidence(name=PER_KIND, value="tf32", unit="text", where=run.config.name) for run in runs),
    )


def _overridden_flag(runs: list[ConfigRun]) -> Finding:
    tf32_ns = sum(tf32_convolution_ns(run) for run in runs)
    return new_finding(
        severity="low",
        title=f"{OVERRIDE}=0 turns TF32 off, although the flags of {plural(len(runs), 'configuration')} allow it",
        explanation=join_sentences(
            f"The environment variable overrides all flags. The flags of "
            f"{join_list([quoted_name(run) for run in runs])} allow TF32.",
            "No convolution kernel of these runs computes in TF32." if not tf32_ns else "",
        ),
        advice=f"Unset {OVERRIDE} to measure the effect of the flags.",
        evidence=(
            Evidence(name="configurations", value=len(runs), unit="count"),
            Evidence(name="TF32 convolution kernels", value=tf32_ns, unit="ns"),
        ),
    )


def _unreadable_flag(unreadable: list[tuple[ConfigRun, str]]) -> Finding:
    names = list(dict.fromkeys(name for _, name in unreadable))
    runs = list(dict.fromkeys(quoted_name(run) for run, _ in unreadable))
    return new_finding(
        severity="low",
        title=f"Reading {join_list(names)} raises an error in {plural(len(runs), 'configuration')}",
        explanation=f"In {join_list(runs)} torch raises an error when the precision is read, because both ways to set it were "
        "used. Other code that reads the flag (such as torch.backends.cudnn.flags) fails too.",
        advice="Set the precision in one way only, either allow_tf32 or fp32_precision, also in the target's file.",
        evidence=(
            Evidence(name="configurations", value=len(runs), unit="count"),
            *(
                Evidence(name=name, value=(_value(run, name) or "")[:200], unit="text", where=run.config.name)
                for run, name in unreadable
            ),
        ),
    )


RULE = Rule("precision_inert", DOC, check, "reading")

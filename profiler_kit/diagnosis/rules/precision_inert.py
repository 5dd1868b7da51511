"""A precision that was asked for and is not what was computed in, or can't be read back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import is_float32
from profiler_kit.diagnosis.pairs import plain
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import ratio, tf32_convolution_ns
from profiler_kit.diagnosis.words import listing, plural, quoted, sentences
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

LEGACY: Final = "cudnn.allow_tf32"
PER_KIND: Final = "cudnn.conv.fp32_precision"
UNREADABLE: Final = "unreadable"  # how a flag begins that raised when it was read
OVERRIDE: Final = "NVIDIA_TF32_OVERRIDE"

DOC = f"""
Flags say what was asked for, kernels what was done. Fires where

- TF32 was forbidden for convolutions (by the configuration, or as `{LEGACY}` or `{PER_KIND}` read back) and convolution
  kernels are of TF32 arithmetic nevertheless (`high`), as on torch 2.11 after `cudnn.fp32_precision = "ieee"`;
- it was forbidden, and `{PER_KIND}` reads back `tf32` (`medium`): the two ways of setting it disagree;
- the variable `{OVERRIDE}=0` forbids what the flags allow (`low`);
- a precision flag raises when it is read (`low`), as on torch 2.13 after both ways of setting it were used.

No threshold: one such kernel is one too many.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires at most once per kind."""
    runs = plain(report)
    if is_float32(report):
        inert = [run for run in runs if _forbids(run) is not None and tf32_convolution_ns(run) > 0]
        if inert:
            yield _inert(inert)
        unset = [run for run in runs if run.config.allow_tf32 is False and _value(run, PER_KIND) == "tf32"]
        if unset:
            yield _unset(unset)
        overridden = [run for run in runs if run.config.allow_tf32 is True and _value(run, OVERRIDE) == "0"]
        if overridden:
            yield _overridden(overridden)
    unreadable = [(run, name) for run in runs for name in _unreadable(run)]
    if unreadable:
        yield _raises(unreadable)


def _value(run: ConfigRun, name: str) -> str | None:
    """The value of a flag or an environment variable in the run; None where it was not read."""
    settings = (*run.environment.flags, *run.environment.variables) if run.environment is not None else ()
    return next((item.value for item in settings if item.name == name), None)


def _forbids(run: ConfigRun) -> str | None:
    """What forbids TF32 for convolutions in this run, in words; None where nothing does."""
    if run.config.allow_tf32 is False:
        return "the configuration"
    for name, value in ((PER_KIND, "ieee"), (LEGACY, "False")):
        if _value(run, name) == value:
            return f"{name} = {value}"
    return None


def _unreadable(run: ConfigRun) -> tuple[str, ...]:
    """The precision flags that raised; one that this version of torch does not have did not."""
    names = (LEGACY, PER_KIND, "cudnn.rnn.fp32_precision", "cuda.matmul.allow_tf32")
    values = ((name, _value(run, name) or "") for name in names)
    return tuple(name for name, value in values if value.startswith(UNREADABLE) and "no attribute" not in value)


def _inert(runs: list[ConfigRun]) -> Finding:
    first = runs[0]
    spent = tf32_convolution_ns(first)
    share = ratio(spent, first.device_ns)
    part = f", {percent(share)} of the device time" if share is not None else ""
    return RULE.finding(
        severity="high",
        title=f"TF32 was forbidden in {listing([quoted(run) for run in runs])}, yet convolutions compute in TF32",
        explanation=f"Kernels of TF32 arithmetic take {text(spent, 'ns')} of each step in {quoted(first)}{part}, though "
        f"{_forbids(first)} forbids it. The kernels' names say what was computed; a flag says only what was asked for.",
        advice="Do not read these runs as float32. Set torch.backends.cudnn.allow_tf32 = False before the first convolution, "
        f"and look for another place, or the variable {OVERRIDE}, that sets the precision again.",
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


def _unset(runs: list[ConfigRun]) -> Finding:
    return RULE.finding(
        severity="medium",
        title=f"TF32 was forbidden in {listing([quoted(run) for run in runs])}, and {PER_KIND} reads tf32",
        explanation="torch has two ways to set the precision of convolutions, and after the flags of the configuration were set "
        "the newer one still allows TF32.",
        advice=f"Set torch.backends.{LEGACY} or torch.backends.{PER_KIND}, one of the two, and read the other back.",
        evidence=tuple(Evidence(name=PER_KIND, value="tf32", unit="text", where=run.config.name) for run in runs),
    )


def _overridden(runs: list[ConfigRun]) -> Finding:
    spent = sum(tf32_convolution_ns(run) for run in runs)
    return RULE.finding(
        severity="low",
        title=f"{OVERRIDE}=0 forbids the TF32 that the flags of {plural(len(runs), 'configuration')} allow",
        explanation=sentences(
            f"The variable comes before any flag: {listing([quoted(run) for run in runs])} read as allowed.",
            "No convolution kernel of theirs is of TF32 arithmetic." if not spent else "",
        ),
        advice=f"Unset {OVERRIDE} to measure what the flags do.",
        evidence=(
            Evidence(name="configurations", value=len(runs), unit="count"),
            Evidence(name="TF32 convolution kernels", value=spent, unit="ns"),
        ),
    )


def _raises(found: list[tuple[ConfigRun, str]]) -> Finding:
    names = list(dict.fromkeys(name for _, name in found))
    runs = list(dict.fromkeys(quoted(run) for run, _ in found))
    return RULE.finding(
        severity="low",
        title=f"Reading {listing(names)} raises in {plural(len(runs), 'configuration')}",
        explanation=f"In {listing(runs)} torch refuses to say the precision: it was set in both of its two ways, so that code "
        "that reads the flag (torch.backends.cudnn.flags does) fails too.",
        advice="Set the precision in one way only, allow_tf32 or fp32_precision, also in the target's file.",
        evidence=(
            Evidence(name="configurations", value=len(runs), unit="count"),
            *(
                Evidence(name=name, value=(_value(run, name) or "")[:200], unit="text", where=run.config.name)
                for run, name in found
            ),
        ),
    )


RULE = Rule("precision_inert", DOC, check, "reading")

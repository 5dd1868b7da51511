"""Convolutions that compute in TF32 though everything they are given is float32, told from their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnose.families import is_convolution
from profiler_kit.diagnose.noise import noise_of, trial
from profiler_kit.diagnose.pairs import counterpart, measured
from profiler_kit.diagnose.rule import Rule
from profiler_kit.diagnose.timing import kernels, ratio
from profiler_kit.diagnose.words import listing, percent, quoted, sentences
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo
from profiler_kit.units import digits, text

# One percent of the largest output is an error a training curve can show; TF32 keeps 10 bits, about 1e-3 per product.
LARGE_ERROR: Final = 1e-2

DOC = f"""
The target computes in float32, and convolution kernels of a run are of TF32 arithmetic: float32 range, but a 10-bit
mantissa. PyTorch allows that for convolutions by default. The finding is drawn from what the kernels were, not from flags,
so it also fires (`high`) where TF32 was forbidden and ran nevertheless, as some ways of setting the precision do nothing.

Gives the largest output error against float64, relative to the largest output, with and without TF32, and the speed that
TF32 buys, where those runs are in the report. `medium` from an error of {LARGE_ERROR:g}, otherwise `info`.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires for the first run with TF32 convolutions, and for those that forbade it."""
    if not _is_float32(report.target):
        return
    using = [run for run in measured(report) if _tf32_ns(run) > 0]
    forbidden = [run for run in using if run.config.allow_tf32 is False]
    allowed = [run for run in using if run.config.allow_tf32 is not False]
    if forbidden:
        yield _inert(forbidden)
    if allowed:
        yield _in_use(report, allowed[0])


def _is_float32(target: TargetInfo) -> bool:
    if target.amp is not None or target.dtype not in (None, "float32"):
        return False
    floating = [given.dtype for given in target.inputs if "float" in given.dtype or given.dtype == "double"]
    return all(dtype == "float32" for dtype in floating)


def _tf32_ns(run: ConfigRun) -> int:
    return sum(k.kernel_ns for k in kernels(run) if k.math == "tf32" and is_convolution(k.family))


def _paths(run: ConfigRun) -> tuple[str, ...]:
    found = (m.path for m in run.modules if any(k.math == "tf32" and is_convolution(k.family) for k in m.kernels))
    return tuple(dict.fromkeys(found))


def _in_use(report: Report, run: ConfigRun) -> Finding:
    exact = counterpart(report, run, "allow_tf32", False)
    if exact is not None and exact.failure is not None:
        exact = None  # nothing to compare with; the failed run has a finding of its own
    spent = _tf32_ns(run)
    share = ratio(spent, run.device_ns)
    factor = ratio(
        exact.step_ns.median if exact is not None and exact.step_ns is not None else None,
        run.step_ns.median if run.step_ns is not None else None,
    )
    error, exact_error = run.max_relative_error, exact.max_relative_error if exact is not None else None
    return Finding(
        rule=RULE.name,
        severity=_severity(error),
        title="Convolutions compute in TF32, not float32"
        + (f": {percent(share)} of the device time in {quoted(run)}" if share is not None else f" in {quoted(run)}"),
        explanation=sentences(
            f"Kernels of TF32 arithmetic take {text(spent, 'ns')} of each step: float32 tensors in and out, but products of "
            "10-bit mantissas. PyTorch allows this for convolutions by default.",
            _error_words(error, exact_error),
            _speed_words(run, exact, factor),
        ),
        advice="If that error is acceptable, leave it. If not, set torch.backends.cudnn.allow_tf32 = False (and leave "
        "torch.backends.cudnn.conv.fp32_precision alone: set one of the two, never both).",
        evidence=_evidence(run, exact, spent, share, factor),
        paths=_paths(run),
        config=exact.config.name if exact is not None else None,
        trial=trial(run, exact, noise_of(report)),
        weight=min(1.0, share) if share is not None else 0.0,
    )


def _severity(error: float | None) -> Severity:
    return "medium" if error is not None and error >= LARGE_ERROR else "info"


def _error_words(error: float | None, exact_error: float | None) -> str:
    if error is None:
        return ""
    said = f"The largest output error against float64 is {digits(error, 2)} of the largest output"
    return f"{said}, and {digits(exact_error, 2)} without TF32." if exact_error is not None else f"{said}."


def _speed_words(run: ConfigRun, exact: ConfigRun | None, factor: float | None) -> str:
    if exact is None or factor is None or run.step_ns is None or exact.step_ns is None:
        return ""
    return (
        f"Without TF32 the step takes {text(exact.step_ns.median, 'ns')} instead of {text(run.step_ns.median, 'ns')}, "
        f"{text(factor, 'ratio')} the time."
    )


def _evidence(
    run: ConfigRun, exact: ConfigRun | None, spent: int, share: float | None, factor: float | None
) -> tuple[Evidence, ...]:
    name = run.config.name
    found = [Evidence(name="TF32 convolution kernels", value=spent, unit="ns", where=name)]
    if share is not None:
        found.append(Evidence(name="share of device time", value=100.0 * share, unit="percent", where=name))
    for one in (run, exact):
        if one is not None and one.max_relative_error is not None:
            found.append(
                Evidence(
                    name="largest relative error", value=one.max_relative_error, unit="text", where=one.config.name
                )
            )
    if factor is not None and exact is not None:
        found.append(Evidence(name="step without TF32", value=factor, unit="ratio", where=exact.config.name))
    return tuple(found)


def _inert(runs: list[ConfigRun]) -> Finding:
    return Finding(
        rule=RULE.name,
        severity="high",
        title=f"TF32 was forbidden in {listing([quoted(run) for run in runs])}, yet convolutions compute in TF32",
        explanation=f"Kernels of TF32 arithmetic take {text(_tf32_ns(runs[0]), 'ns')} of each step in {quoted(runs[0])}. The "
        "kernels' names say what was computed; the flag says only what was asked for.",
        advice="Do not read these runs as float32. Set torch.backends.cudnn.allow_tf32 = False before the first convolution, "
        "and look for another place, or the variable NVIDIA_TF32_OVERRIDE, that sets the precision again.",
        evidence=tuple(
            Evidence(name="TF32 convolution kernels", value=_tf32_ns(run), unit="ns", where=run.config.name)
            for run in runs
        ),
        paths=_paths(runs[0]),
        weight=1.0,
    )


RULE = Rule("tf32_in_use", DOC, check)

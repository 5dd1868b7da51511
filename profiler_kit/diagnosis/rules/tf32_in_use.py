"""Convolutions that compute in TF32 though everything they are given is float32, told from their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import attempt, is_float32
from profiler_kit.diagnosis.pairs import counterpart, plain
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import ratio, tf32_convolution_ns
from profiler_kit.diagnosis.words import quoted, sentences
from profiler_kit.records.families import is_convolution
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import digits, percent, text

# One percent of the largest output is an error a training curve can show; TF32 keeps 10 bits, about 1e-3 per product.
LARGE_ERROR: Final = 1e-2

DOC = f"""
The target computes in float32, and convolution kernels of a run are of TF32 arithmetic: float32 range, but a 10-bit
mantissa. PyTorch allows that for convolutions by default. The finding is drawn from what the kernels were, not from flags,
so it does not count on what was set; where TF32 was forbidden and ran nevertheless, rule `precision_inert` says so.

Gives the largest output error against float64, relative to the largest output, with and without TF32, and the speed that
TF32 buys, where those runs are in the report. `medium` from an error of {LARGE_ERROR:g}, otherwise `info`.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires for the first run with TF32 convolutions that did not forbid them."""
    if not is_float32(report):
        return
    allowed = [run for run in plain(report) if tf32_convolution_ns(run) > 0 and run.config.allow_tf32 is not False]
    if allowed:
        yield _in_use(report, allowed[0])


def _in_use(report: Report, run: ConfigRun) -> Finding:
    exact = counterpart(report, run, "allow_tf32", False)
    if exact is not None and exact.failure is not None:
        exact = None  # nothing to compare with; the failed run has a finding of its own
    spent = tf32_convolution_ns(run)
    share = ratio(spent, run.device_ns)
    factor = ratio(
        exact.step_ns.median if exact is not None and exact.step_ns is not None else None,
        run.step_ns.median if run.step_ns is not None else None,
    )
    error, exact_error = run.max_relative_error, exact.max_relative_error if exact is not None else None
    tried = attempt(report, run, ("no-tf32",))
    return RULE.finding(
        severity="medium" if error is not None and error >= LARGE_ERROR else "info",
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
        paths=(m.path for m in run.modules if any(k.math == "tf32" and is_convolution(k.family) for k in m.kernels)),
        attempt=tried,
        weight=share if share is not None else 0.0,
    )


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
) -> Iterator[Evidence]:
    yield from known(
        run.config.name,
        ("TF32 convolution kernels", spent, "ns"),
        ("share of device time", 100.0 * share if share is not None else None, "percent"),
        ("largest relative error", run.max_relative_error, "text"),
    )
    if exact is not None:
        error = exact.max_relative_error
        yield from known(
            exact.config.name, ("largest relative error", error, "text"), ("step without TF32", factor, "ratio")
        )


RULE = Rule("tf32_in_use", DOC, check)

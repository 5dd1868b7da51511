"""Convolutions of float32 tensors that compute in TF32, by the names of their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials, is_float32
from profiler_kit.diagnosis.pairs import counterpart, plain_runs
from profiler_kit.diagnosis.phrases import join_sentences, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import ratio, tf32_convolution_ns
from profiler_kit.records.families import is_convolution
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import digits, percent, text

# An error of one percent of the largest output is visible in a training curve. TF32 keeps 10 bits, about 1e-3 per product.
LARGE_ERROR: Final = 1e-2

DOC = f"""
Fires if the target computes in float32, and convolution kernels of a run compute in TF32: the range of float32, but a mantissa of
10 bits. PyTorch allows TF32 for convolutions by default.

- `medium`: the output error is at least {LARGE_ERROR:g}.
- `info`: below that, or if the error is unknown.

The finding gives the largest output error against float64, relative to the largest output, with and without TF32, and the speedup
by TF32, if the report has these runs. It relies on kernel names, not on flags. Rule `precision_inert` covers TF32 that runs
although it is turned off.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the first run with TF32 convolutions in which TF32 is allowed."""
    if not is_float32(report):
        return
    tf32_runs = [
        run for run in plain_runs(report) if tf32_convolution_ns(run) > 0 and run.config.allow_tf32 is not False
    ]
    if tf32_runs:
        yield _finding(report, tf32_runs[0])


def _finding(report: Report, run: ConfigRun) -> Finding:
    exact = counterpart(report, run, "allow_tf32", False)
    if exact is not None and exact.failure is not None:
        exact = None  # without samples it cannot be compared; rule `failed_runs` reports it
    tf32_ns = tf32_convolution_ns(run)
    share = ratio(tf32_ns, run.device_ns)
    factor = ratio(
        exact.step_ns.median if exact is not None and exact.step_ns is not None else None,
        run.step_ns.median if run.step_ns is not None else None,
    )
    error, exact_error = run.max_relative_error, exact.max_relative_error if exact is not None else None
    return new_finding(
        severity="medium" if error is not None and error >= LARGE_ERROR else "info",
        title="Convolutions compute in TF32, not float32"
        + (
            f": {percent(share)} of the device time in {quoted_name(run)}"
            if share is not None
            else f" in {quoted_name(run)}"
        ),
        explanation=join_sentences(
            f"TF32 kernels take {text(tf32_ns, 'ns')} per step. Their tensors are float32, but they multiply 10-bit mantissas. "
            "PyTorch allows this for convolutions by default.",
            _error_sentence(error, exact_error),
            _speed_sentence(run, exact, factor),
        ),
        advice="No action is needed if the error is acceptable. Otherwise set {code}. Do not set "
        "torch.backends.cudnn.conv.fp32_precision too: torch does not support both settings together.",
        code="torch.backends.cudnn.allow_tf32 = False",
        evidence=_evidence(run, exact, tf32_ns, share, factor),
        paths=(m.path for m in run.modules if any(k.math == "tf32" and is_convolution(k.family) for k in m.kernels)),
        trials=find_trials(report, run, ("no-tf32",)),
        weight=share if share is not None else 0.0,
    )


def _error_sentence(error: float | None, exact_error: float | None) -> str:
    if error is None:
        return ""
    sentence = f"The largest output error against float64 is {digits(error, 2)} of the largest output"
    return f"{sentence}, and {digits(exact_error, 2)} without TF32." if exact_error is not None else f"{sentence}."


def _speed_sentence(run: ConfigRun, exact: ConfigRun | None, factor: float | None) -> str:
    if exact is None or factor is None or run.step_ns is None or exact.step_ns is None:
        return ""
    return (
        f"Without TF32 the step takes {text(exact.step_ns.median, 'ns')} instead of {text(run.step_ns.median, 'ns')} "
        f"({text(factor, 'ratio')})."
    )


def _evidence(
    run: ConfigRun, exact: ConfigRun | None, tf32_ns: int, share: float | None, factor: float | None
) -> Iterator[Evidence]:
    yield from evidence_of(
        run.config.name,
        ("TF32 convolution kernels", tf32_ns, "ns"),
        ("share of device time", 100.0 * share if share is not None else None, "percent"),
        ("largest relative error", run.max_relative_error, "text"),
    )
    if exact is not None:
        error = exact.max_relative_error
        yield from evidence_of(
            exact.config.name, ("largest relative error", error, "text"), ("step without TF32", factor, "ratio")
        )


RULE = Rule("tf32_in_use", DOC, check)

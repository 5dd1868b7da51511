"""TF32: convolutions that use it, and flags that do not say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials, is_float32
from profiler_kit.diagnosis.pairs import counterpart, plain_runs
from profiler_kit.diagnosis.phrases import join_list, join_sentences, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import ratio, tf32_convolution_ns
from profiler_kit.records.families import is_convolution
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import digits, percent, text

# An error of one percent of the largest output is visible in a training curve. TF32 keeps 10 bits, about 1e-3 per product.
LARGE_ERROR: Final = 1e-2


def _tf32_in_use(report: Report) -> Iterator[Finding]:
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


TF32_IN_USE = Rule(
    "tf32_in_use",
    f"""
Fires if the target computes in float32, and convolution kernels of a run compute in TF32: the range of float32, but a mantissa of
10 bits. PyTorch allows TF32 for convolutions by default.

- `medium`: the output error is at least {LARGE_ERROR:g}.
- `info`: below that, or if the error is unknown.

The finding gives the largest output error against float64, relative to the largest output, with and without TF32, and the speedup
by TF32, if the report has these runs. It relies on kernel names, not on flags. Rule `precision_inert` covers TF32 that runs
although it is turned off.
""",
    _tf32_in_use,
)


LEGACY: Final = "cudnn.allow_tf32"
PER_KIND: Final = "cudnn.conv.fp32_precision"
UNREADABLE: Final = "unreadable"  # prefix of the recorded value of a flag that raised when it was read
OVERRIDE: Final = "NVIDIA_TF32_OVERRIDE"


def _precision_inert(report: Report) -> Iterator[Finding]:
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


PRECISION_INERT = Rule(
    "precision_inert",
    f"""
Fires if precision flags have no effect, contradict each other, or cannot be read. It compares the flags with the names of the
kernels, which show the arithmetic that was used.

- `high`: TF32 is off for convolutions (by the configuration, `{LEGACY}` or `{PER_KIND}`), but convolution
  kernels compute in TF32. Example: torch 2.11 after `cudnn.fp32_precision = "ieee"`.
- `medium`: the configuration turns TF32 off, but `{PER_KIND}` still reads `tf32`. The two ways to set the
  precision disagree.
- `low`: the environment variable `{OVERRIDE}=0` turns off TF32 that the flags allow.
- `low`: a precision flag raises when it is read. Example: torch 2.13 after both ways to set the precision were used.

One such kernel is enough; the rule has no threshold.
""",
    _precision_inert,
    "reading",
)

"""What went wrong: configurations that failed, values that are not finite, flags that a file or a model sets, uncounted ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials
from profiler_kit.diagnosis.pairs import (
    measured_runs,
    plain_runs,
)
from profiler_kit.diagnosis.phrases import (
    advise,
    join_list,
    join_sentences,
    layer_name,
    plural,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.report import Evidence, Finding, Report, Severity, Trial
from profiler_kit.records.runs import ConfigRun, FailureKind
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent

_FAILURE_WORDS: Final[dict[FailureKind, str]] = {
    "error": "raised an error",
    "out_of_memory": "ran out of memory",
    "crash": "crashed",
    "timeout": "did not finish in time",
    "interrupted": "stopped when the user interrupted",
    "target": "could not load the target",
}
_ADVICE: Final[dict[FailureKind, str]] = {
    "error": "Read the message, and the end of the log in the report.",
    "out_of_memory": "Try a smaller batch (--batch). A configuration with a large workspace may fail while others fit.",
    "crash": "The process ended without a Python error: read the end of its log in the report.",
    "timeout": "Allow more time (--timeout), or use a smaller batch (--batch).",
    "interrupted": "Run the command again to measure the missing configurations.",
    "target": "Fix the target as the message says.",
}
_UNUSED_ADVICE: Final = advise(
    "Some parameters take no part in the loss. Remove them from the model, or search for them in each step: {code}, measured by "
    "`--configs find_unused`.",
    "DistributedDataParallel(model, find_unused_parameters=True)",
)
# The baseline ran, so the target is right, and only a setting does not fit it.
_OPTIONAL_WORDS: Final[dict[FailureKind, str]] = {"target": "does not work with this model"}
_OPTIONAL_ADVICE: Final = (
    "Leave this setting off: the model runs without it. To use it, change the line that the message names."
)


def _failed_runs(report: Report) -> Iterator[Finding]:
    """Yield one finding for each kind and message of failure."""
    failures: dict[tuple[FailureKind, str], list[ConfigRun]] = {}
    for run in report.runs:
        if run.failure is not None:
            failures.setdefault((run.failure.kind, run.failure.first_line), []).append(run)
    baseline = report.baseline()
    for (kind, line), runs in failures.items():
        is_optional = baseline is not None and not any(run.config.is_plain for run in runs)
        words = _OPTIONAL_WORDS.get(kind) if is_optional else None
        unused = any(run.failure.code == "unused_parameters" for run in runs if run.failure is not None)
        yield new_finding(
            severity=_severity(kind, is_measured=baseline is not None, is_optional=is_optional),
            title=f"{join_list([quoted_name(run) for run in runs])} {words or _FAILURE_WORDS[kind]}",
            explanation=f"{len(runs)} of {plural(len(report.runs), 'configuration')} "
            f"{'has' if len(runs) == 1 else 'have'} no samples: {line.rstrip('.') or 'the process left no message'}.",
            advice=_OPTIONAL_ADVICE if words else _UNUSED_ADVICE if unused else _ADVICE[kind],
            evidence=(
                Evidence(name="failed configurations", value=len(runs), unit="count"),
                *(Evidence(name="failure", value=kind, unit="text", where=run.config.name) for run in runs),
            ),
            weight=1.0 if baseline is None else len(runs) / len(report.runs),
        )


def _severity(kind: FailureKind, *, is_measured: bool, is_optional: bool) -> Severity:
    if kind == "interrupted":
        return "info"
    if not is_measured:
        return "high"
    return "low" if is_optional else "medium"


FAILED_RUNS = Rule(
    "failed_runs",
    """
Fires when a configuration failed. Configurations that failed for the same reason share one finding.

- `high`: no configuration was measured.
- `medium`: the baseline was measured, and a combination of cuDNN's flags failed.
- `low`: only configurations with other settings failed, such as another layout or data type. The model works without them.
- `info`: the user interrupted the run.
""",
    _failed_runs,
    "runs",
)


def _not_finite(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline if it is affected, otherwise for the first affected run."""
    runs = [run for run in measured_runs(report) if run.nan_in or run.infinity_in]
    if runs:
        baseline = report.baseline()
        yield _finding(report, baseline if baseline in runs else runs[0], runs)


def _finding(report: Report, run: ConfigRun, runs: list[ConfigRun]) -> Finding:
    is_default = run is report.baseline()
    is_mask = not run.nan_in and run.infinity_in == ("outputs",)
    contents = [
        f"{join_list(list(parts))} {'contains' if parts == ('loss',) else 'contain'} {value}"
        for parts, value in ((run.nan_in, "NaN"), (run.infinity_in, "infinity"))
        if parts
    ]
    return new_finding(
        severity="info" if is_mask else "high" if is_default else "medium",
        title=f"Not finite in {quoted_name(run)}: {join_list(contents)}",
        explanation=join_sentences(
            "This is the first pass, from the initial weights and on the measured inputs.",
            f"The same holds in {join_list([quoted_name(r) for r in runs if r is not run], most=3)}."
            if runs[1:]
            else "",
            "" if is_default else "The default configuration is finite.",
            "Times and memory are those of the model; errors and values mean nothing.",
        ),
        advice=(
            "No action is needed if the model masks scores with infinity."
            if is_mask
            else advise(
                "Run one step under {code}, which names the operator whose gradient is NaN. Check the inputs: random ones may "
                "lie outside of the model's range, such as a logarithm of negative numbers.",
                "torch.autograd.detect_anomaly()",
            )
            if is_default
            else "Keep this configuration out of training, or scale the loss (torch.amp.GradScaler) with float16."
        ),
        evidence=[
            Evidence(name=f"{value} in", value=join_list(list(parts)), unit="text", where=each.config.name)
            for each in runs
            for parts, value in ((each.nan_in, "NaN"), (each.infinity_in, "infinity"))
            if parts
        ],
    )


NOT_FINITE = Rule(
    "not_finite",
    """
Fires if the first pass of a configuration, from the initial weights and on the measured inputs, gives NaN or infinity. The
outputs, the loss and the gradients are checked separately.

- `high`: the loss or a gradient is not finite under the default configuration, or an output is NaN.
- `medium`: the same under another configuration only.
- `info`: only outputs contain infinity, such as masked scores.

Times and memory are still those of the model. A kernel takes as long for NaN as for other numbers. What depends on values may
differ: branches, beam search, the error against float64, sparse gradients. Later steps are not checked.
""",
    _not_finite,
    topic="runs",
)


def _flags_changed(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for all runs in which a flag changed."""
    runs = [run for run in measured_runs(report) if run.flags_changed]
    if not runs:
        return
    changes = list(dict.fromkeys(change for run in runs for change in run.flags_changed))
    flags = {change.partition(":")[0].rpartition(".")[2].strip() for change in changes}
    yield new_finding(
        severity="high" if "enabled" in flags else "medium",
        title=f"The model changes cuDNN's flags while it runs: {join_list(changes)}",
        explanation=join_sentences(
            f"{plural(len(runs), 'run')} ({join_list([quoted_name(run) for run in runs])}) "
            + ("does not match its configuration." if len(runs) == 1 else "do not match their configurations."),
            "Setting benchmark has no effect on shapes that already ran: their algorithm is cached."
            if "benchmark" in flags
            else "",
            "deterministic and TF32 are part of the cache key, so each change selects an algorithm again."
            if flags & {"deterministic", "allow_tf32"}
            else "",
            "While cuDNN is off, convolutions run as PyTorch's own im2col and matrix product."
            if "enabled" in flags
            else "",
        ),
        advice="Set cuDNN's flags once, before the first convolution, outside the model. In torch.backends.cudnn.flags(...), "
        "pass enabled=True: its default turns cuDNN off inside the block.",
        evidence=tuple(
            Evidence(name="flag changed", value=change, unit="text", where=run.config.name)
            for run in runs
            for change in run.flags_changed
        ),
    )


FLAGS_CHANGED = Rule(
    "flags_changed",
    """
Fires when a cuDNN flag has another value after a run's steps than before them: the model, its loss or its optimizer sets it.
The run then does not match its configuration.

- `high`: the flag is `enabled`, so cuDNN is off for part of the step.
- `medium`: another flag.

Setting `benchmark` has no effect on shapes that already ran: PyTorch caches the algorithm, and the cache key does not contain
this flag. `deterministic` and `allow_tf32` are in the key, so a change of them selects an algorithm again, or searches again.
""",
    _flags_changed,
    "reading",
)


# More names would fill the screen. The table of uncounted ops lists all of them.
MAX_LISTED_OPS: Final = 8


def _uncounted_ops(report: Report) -> Iterator[Finding]:
    """Yield at most one finding."""
    if report.static is None or not report.static.uncounted:
        return
    ops = sorted(report.static.uncounted, key=lambda op: (-op.calls, op.op))
    calls = sum(op.calls for op in ops)
    paths = tuple(dict.fromkeys(path for op in ops for path in op.paths))
    names = join_list([op.op for op in ops], most=MAX_LISTED_OPS)
    yield new_finding(
        severity="medium",
        title=f"FLOPs are lower bounds: {plural(len(ops), 'op has', 'ops have')} no FLOP formula "
        f"({plural(calls, 'call')} per step)",
        explanation=join_sentences(
            f"profiler_kit has no formula for {names}.",
            f"{'It runs' if len(ops) == 1 else 'They run'} in {join_list([layer_name(path) for path in paths])}."
            if paths
            else "",
            "FLOPs, MACs and rates of these modules are lower bounds, and so are the totals.",
        ),
        advice="Add a formula in profiler_kit/counting/formulas/, or treat the totals as lower bounds.",
        evidence=(
            Evidence(name="uncounted ops", value=len(ops), unit="count"),
            Evidence(name="uncounted calls per step", value=calls, unit="count"),
            *(
                Evidence(name="calls per step", value=op.calls, unit="count", where=op.op)
                for op in ops[:MAX_LISTED_OPS]
            ),
        ),
        paths=paths,
    )


UNCOUNTED_OPS = Rule(
    "uncounted_ops",
    """
Fires if the model has any op without a FLOP formula, because a single op can be most of the model. Always `medium`.

The FLOPs of these ops are unknown, not zero. FLOP figures that include them are lower bounds, and so are rates (FLOP/s).
""",
    _uncounted_ops,
    needs_runs=False,
)


def _cudnn_off_by_accident(report: Report) -> Iterator[Finding]:
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


CUDNN_OFF_BY_ACCIDENT = Rule(
    "cudnn_off_by_accident",
    """
Fires when the target's file turns cuDNN off: it sets `cudnn.enabled = False`, or it calls `cudnn.flags(...)` without
`enabled`, whose default is False there, so that cuDNN is off inside the block.

- `high`: a run without cuDNN was measured and is significantly slower.
- `medium`: otherwise.
- `info`: the file sets other flags, such as `benchmark` or `deterministic`. The finding names the configuration that matches
  the file, if one was measured.

The call to `cudnn.flags` is found by reading the file, not by running it, so a step may never reach it. Flags that the file
sets are restored before measuring, because each configuration sets its own.
""",
    _cudnn_off_by_accident,
    "reading",
    needs_runs=False,
)

"""A first step that needs much more memory than later steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import factor_text, join_list, join_sentences, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# The first step has no gradients and no optimizer state yet, so it should need less memory than a later one.
MIN_FACTOR: Final = 1.3
# Above this share, the first step may run out of memory on a device on which later steps fit.
LARGE_DEVICE_SHARE: Final = 0.8

DOC = f"""
Fires if the memory peak of the first step is more than {MIN_FACTOR:g}x that of a steady step. With `cudnn.benchmark=True` the
cause is the algorithm search, which tries algorithms with large workspaces. The model may then run out of memory in the first
step, on a device on which later steps fit.

- `medium`: the baseline is affected, or the first peak is more than {limit_percent(LARGE_DEVICE_SHARE)} of the device's memory.
- `low`: otherwise.

The rule yields one finding, for the run with the largest factor. It names the other runs.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the run with the largest factor."""
    factors = [(run, ratio(run.first_step_peak_bytes, run.peak_allocated_bytes)) for run in plain_runs(report)]
    affected = [(run, factor) for run, factor in factors if factor is not None and factor > MIN_FACTOR]
    if not affected:
        return
    run, factor = max(affected, key=lambda item: item[1])
    others = [quoted_name(other) for other, _ in affected if other is not run]
    memory = run.environment.device_memory_bytes if run.environment is not None else None
    device_share = ratio(run.first_step_peak_bytes, memory)
    in_baseline = any(other is report.baseline() for other, _ in affected)
    may_not_fit = device_share is not None and device_share > LARGE_DEVICE_SHARE
    first, steady = run.first_step_peak_bytes or 0, run.peak_allocated_bytes or 0  # both exist, because the factor does
    yield new_finding(
        severity="medium" if in_baseline or may_not_fit else "low",
        title=f"The first step of {quoted_name(run)} needs {factor_text(factor)} the memory of later steps: "
        f"{text(first, 'bytes')}, then {text(steady, 'bytes')}",
        explanation=join_sentences(
            "In the first step, cudnn.benchmark tries algorithms, and some need a large workspace. The selected algorithms need "
            "less."
            if run.config.benchmark
            else "The first step allocates memory that later steps do not need, to select algorithms or to build caches.",
            f"The first peak is {percent(device_share)} of the device's memory." if device_share is not None else "",
            f"The same holds for {join_list(others)}." if others else "",
        ),
        advice=_advice(run),
        evidence=(
            Evidence(name="peak of the first step", value=first, unit="bytes", where=run.config.name),
            Evidence(name="peak of steady steps", value=steady, unit="bytes", where=run.config.name),
            Evidence(name="factor", value=factor, unit="ratio", where=run.config.name),
        ),
        weight=1.0 - 1.0 / factor,
    )


def _advice(run: ConfigRun) -> str:
    if run.config.benchmark:
        return (
            "Choose the batch size by the peak of the first step, or try fewer algorithms "
            "(torch.backends.cudnn.benchmark_limit, 10 by default). The search skips algorithms whose workspace does not fit, so "
            "it selects slower ones on a full device."
        )
    return "Choose the batch size by the peak of the first step, not by the memory of a running job."


RULE = Rule("startup_peak", DOC, check, "memory")

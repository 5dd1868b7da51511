"""A memory peak that comes from library workspace rather than activations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import (
    capitalize,
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import layer_algorithm
from profiler_kit.records.claims import PEAK
from profiler_kit.records.families import family_name
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.units import percent, text

# A fifth of the peak decides whether a batch fits.
MAX_WORKSPACE_SHARE: Final = 0.20
# Workspace that exceeds the activations is worth a finding from this share of the peak on.
MIN_WORKSPACE_SHARE: Final = 0.05
# Memory limits a step only where the device is almost full. Below half of its memory, even twice the batch fits.
MIN_DEVICE_SHARE: Final = 0.50
# A configuration with less than this share of the peak is named as an alternative.
LOWER_PEAK_SHARE: Final = 0.90

DOC = f"""
Fires if, at the op with the memory peak of a step, library workspace (of cuDNN, or layout copies) is more than
{limit_percent(MAX_WORKSPACE_SHARE)} of the peak, or exceeds the live activations and is more than
{limit_percent(MIN_WORKSPACE_SHARE)} of the peak.

- `high`: workspace exceeds the activations.
- `medium`: otherwise.
- `low`: the baseline is not affected, or the peak is less than {limit_percent(MIN_DEVICE_SHARE)} of the device's memory.

Workspace is measured: the peak during the op, minus the memory before it and the memory of its results. It is neither a leak nor
activations. A smaller batch, checkpointing or another optimizer may not reduce it.

The finding names the op, its layer, and the algorithm with the most device time in the layer. There is one finding per layer,
phase and algorithm, for the run with the largest workspace.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding per layer, phase and algorithm."""
    groups: dict[tuple[str, str, str | None], list[tuple[ConfigRun, PeakMemory]]] = {}
    for run in plain_runs(report):
        memory = run.memory
        is_fallback = (
            run.config.enabled is False and run is not report.baseline()
        )  # rule `cudnn_off_fallback` covers it
        if memory is not None and _has_large_workspace(memory) and not is_fallback:
            groups.setdefault((memory.peak_path, memory.peak_phase, _family(run, memory)), []).append((run, memory))
    for (_, _, family), group in groups.items():
        yield _finding(report, family, group)


def _has_large_workspace(memory: PeakMemory) -> bool:
    if memory.peak_bytes <= 0:
        return False
    share = memory.workspace / memory.peak_bytes
    exceeds_activations = memory.workspace > memory.saved_activations
    return share > MAX_WORKSPACE_SHARE or (exceeds_activations and share > MIN_WORKSPACE_SHARE)


def _family(run: ConfigRun, memory: PeakMemory) -> str | None:
    used = layer_algorithm(run, memory.peak_path, memory.peak_phase)
    return used.family if used is not None and run.clock == "kernel" else None


def _finding(report: Report, family: str | None, group: list[tuple[ConfigRun, PeakMemory]]) -> Finding:
    run, memory = max(group, key=lambda item: item[1].workspace)
    others = [quoted_name(other) for other, _ in group if other is not run]
    in_baseline = any(other is report.baseline() for other, _ in group)
    share = memory.workspace / memory.peak_bytes
    model_bytes = memory.parameters + memory.gradients + memory.optimizer_state
    lower = _lower_peak_run(report, run)
    return new_finding(
        severity=_severity(run, memory) if in_baseline else "low",
        title=_title(run, memory, family),
        explanation=join_sentences(
            f"The memory peak of the step is {text(memory.peak_bytes, 'bytes')}, in {phase_name(memory.peak_phase)} of "
            f"{layer_name(memory.peak_path)}. {percent(share)} of it is {_workspace_name(family)} that "
            f"{memory.peak_op} allocates while it runs.",
            f"Activations take {text(memory.saved_activations, 'bytes')}; parameters, gradients and optimizer state take "
            f"{text(model_bytes, 'bytes')}.",
            f"The same holds for {join_list(others)}." if others else "",
            _lower_peak_sentence(run, lower),
        ),
        advice=_advice(lower),
        evidence=_evidence(run, memory, family, share, lower),
        paths=(memory.peak_path,),
        weight=share,
        claims=(PEAK,) if in_baseline else (),
    )


def _severity(run: ConfigRun, memory: PeakMemory) -> Severity:
    """Return the severity for the baseline, by the memory of its device where that is known."""
    device_bytes = run.environment.device_memory_bytes if run.environment is not None else None
    if device_bytes and memory.peak_bytes < MIN_DEVICE_SHARE * device_bytes:
        return "low"
    return "high" if memory.workspace > memory.saved_activations else "medium"


def _workspace_name(family: str | None) -> str:
    return f"{family_name(family).partition(' (')[0] if family is not None else 'library'} workspace"


def _title(run: ConfigRun, memory: PeakMemory, family: str | None) -> str:
    name = _workspace_name(family)
    place, workspace = layer_name(memory.peak_path), text(memory.workspace, "bytes")
    if memory.workspace > memory.saved_activations:
        return f"Memory peak of {quoted_name(run)}: {workspace} of {name} in {place}, not activations"
    share = percent(memory.workspace / memory.peak_bytes)
    return f"{capitalize(name)} is {share} of the memory peak of {quoted_name(run)}: {workspace} in {place}"


def _lower_peak_run(report: Report, run: ConfigRun) -> ConfigRun | None:
    """Return the fastest run with a clearly lower peak; None without one."""
    peak = run.peak_allocated_bytes
    if peak is None:
        return None
    runs = [
        (other.step_ns.median, other)
        for other in plain_runs(report)
        if other.step_ns is not None and (other.peak_allocated_bytes or peak) < LOWER_PEAK_SHARE * peak
    ]
    return min(runs, key=lambda item: item[0], default=(0, None))[1]


def _lower_peak_sentence(run: ConfigRun, lower: ConfigRun | None) -> str:
    if lower is None or lower.step_ns is None or run.step_ns is None:
        return ""
    return (
        f"{quoted_name(lower)} has a peak of {text(lower.peak_allocated_bytes, 'bytes')} and a step of "
        f"{text(lower.step_ns.median, 'ns')}; {quoted_name(run)} has a peak of "
        f"{text(run.peak_allocated_bytes, 'bytes')} and a step of {text(run.step_ns.median, 'ns')}."
    )


def _advice(lower: ConfigRun | None) -> str:
    return join_sentences(
        f"Use the flags of {quoted_name(lower)} if you need less memory." if lower is not None else "",
        "Activation checkpointing does not reduce workspace.",
        "If the workspace does not fit into free memory, PyTorch uses the next algorithm that cuDNN supports, which needs less "
        "memory and is usually slower. Leave enough free memory for the speed, or measure a limit with --memory-limit.",
    )


def _evidence(
    run: ConfigRun, memory: PeakMemory, family: str | None, share: float, lower: ConfigRun | None
) -> Iterator[Evidence]:
    name = run.config.name
    where = f"{memory.peak_path}, {memory.peak_phase}, {name}"
    yield Evidence(name="workspace", value=memory.workspace, unit="bytes", where=where)
    yield Evidence(name="share of the peak", value=100.0 * share, unit="percent", where=where)
    yield Evidence(name="activations at the peak", value=memory.saved_activations, unit="bytes", where=name)
    yield Evidence(name="peak", value=memory.peak_bytes, unit="bytes", where=name)
    yield Evidence(name="op", value=memory.peak_op, unit="text", where=where)
    if family is not None:
        yield Evidence(name="algorithm", value=family_name(family), unit="text", where=where)
    if lower is not None:
        yield from evidence_of(lower.config.name, ("peak", lower.peak_allocated_bytes, "bytes"))


RULE = Rule("workspace_peak", DOC, check, "memory")

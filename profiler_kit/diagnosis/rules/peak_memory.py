"""What makes the memory peak: activations, library workspace, the first step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    capitalize,
    factor_text,
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import layer_algorithm, ratio
from profiler_kit.records.claims import PEAK
from profiler_kit.records.counts import ModuleMemory, StaticCount
from profiler_kit.records.families import family_name
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.units import percent, text

# Above half of the peak, no other category can lower it as much.
MIN_PEAK_SHARE: Final = 0.50
# Above this share of the device's memory, a slightly larger batch does not fit.
MAX_DEVICE_SHARE: Final = 0.80
# Checkpointing a module that saves less than this share of all activations is not worth running it twice.
MIN_MODULE_SHARE: Final = 0.10


def _activations_peak(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    if run is None or run.memory is None or report.target.mode != "train" or run.memory.peak_bytes <= 0:
        return
    share = min(1.0, run.memory.saved_activations / run.memory.peak_bytes)
    if share < MIN_PEAK_SHARE:
        return
    device_bytes = run.environment.device_memory_bytes if run.environment is not None else None
    device_share = ratio(run.peak_allocated_bytes, device_bytes)
    module = _largest_module(report.static)
    recompute_share = _recompute_share(report.static, module)
    checkpointing = find_trials(report, run, (f"checkpoint={module.path}",) if module is not None else ())
    saved = text(run.memory.saved_activations, "bytes")
    yield new_finding(
        severity="medium" if device_share is not None and device_share > MAX_DEVICE_SHARE else "info",
        title=f"Activations saved for backward, {saved}, are {percent(share)} of the memory peak",
        explanation=join_sentences(
            f"{quoted_name(run)} peaks at {text(run.memory.peak_bytes, 'bytes')}.",
            f"That is {percent(device_share)} of the device's memory." if device_share is not None else "",
            f"{text(module.inside_bytes, 'bytes')} are saved inside {layer_name(module.path)}."
            if module is not None
            else "",
            f"Recomputing it in backward adds {percent(recompute_share)} of the step's FLOPs (computed from the counts)."
            if recompute_share is not None
            else "",
        ),
        advice=_activations_advice(module, facts_of(report)),
        evidence=(
            Evidence(name="saved activations", value=run.memory.saved_activations, unit="bytes", where=run.config.name),
            Evidence(name="share of the peak", value=100.0 * share, unit="percent", where=run.config.name),
            *(
                evidence_of(f"{module.path}, computed", ("saved inside", module.inside_bytes, "bytes"))
                if module
                else ()
            ),
            *evidence_of(
                "computed",
                ("recomputed FLOPs", 100.0 * recompute_share if recompute_share is not None else None, "percent"),
            ),
        ),
        paths=(module.path,) if module is not None else (),
        trials=checkpointing,
        weight=share,
        claims=(PEAK,),
        computed=module is not None,
    )


def _largest_module(static: StaticCount | None) -> ModuleMemory | None:
    """The submodule that saves the most tensors which only its inside uses; None if it saves too little to matter."""
    modules = static.memory.modules if static is not None and static.memory is not None else ()
    created_bytes = sum(module.created_bytes for module in modules)
    submodules = [module for module in modules if module.path and not module.path.startswith("(")]
    largest = max(submodules, key=lambda module: module.inside_bytes, default=None)
    if largest is None or largest.inside_bytes <= 0 or largest.inside_bytes < MIN_MODULE_SHARE * created_bytes:
        return None
    return largest


def _recompute_share(static: StaticCount | None, module: ModuleMemory | None) -> float | None:
    """The forward FLOPs of `module`, including children, as a share of the step's FLOPs."""
    if static is None or module is None:
        return None
    nodes = (node for node in static.modules if f"{node.path}.".startswith(f"{module.path}."))
    return ratio(sum(node.forward.flops for node in nodes), static.step.flops)


def _activations_advice(module: ModuleMemory | None, facts: Facts) -> Advice:
    alternatives = f"a smaller batch, {'' if facts.half else 'autocast to bfloat16, '}or in-place activations"
    if module is None:
        return Advice(f"To save memory, use {alternatives}.")
    return advise(
        f"To save memory, wrap {layer_name(module.path)} in {{code}}: it then saves only its inputs. Or use {alternatives}.",
        "torch.utils.checkpoint.checkpoint(..., use_reentrant=False)",
    )


ACTIVATIONS_PEAK = Rule(
    "activations_peak",
    f"""
Fires in training when activations saved for backward are at least {limit_percent(MIN_PEAK_SHARE)} of the baseline's measured
memory peak.

- `medium`: the peak is more than {limit_percent(MAX_DEVICE_SHARE)} of the device's memory.
- `info`: otherwise.

The finding names the submodule that saves most inside it, if this is at least {limit_percent(MIN_MODULE_SHARE)} of all saved
activations. Checkpointing the submodule frees these tensors. The FLOPs that it computes again are **computed from the
counts**; the configuration `checkpoint=PATH` measures the memory and the time. Checkpointing saves memory and always costs
time. It pays only if the memory allows a larger batch.
""",
    _activations_peak,
    "memory",
)


# A fifth of the peak decides whether a batch fits.
MAX_WORKSPACE_SHARE: Final = 0.20
# Workspace that exceeds the activations is worth a finding from this share of the peak on.
MIN_WORKSPACE_SHARE: Final = 0.05
# Memory limits a step only where the device is almost full. Below half of its memory, even twice the batch fits.
MIN_DEVICE_SHARE: Final = 0.50
# A configuration with less than this share of the peak is named as an alternative.
LOWER_PEAK_SHARE: Final = 0.90


def _workspace_peak(report: Report) -> Iterator[Finding]:
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
        yield _workspace_finding(report, family, group)


def _has_large_workspace(memory: PeakMemory) -> bool:
    if memory.peak_bytes <= 0:
        return False
    share = memory.workspace / memory.peak_bytes
    exceeds_activations = memory.workspace > memory.saved_activations
    return share > MAX_WORKSPACE_SHARE or (exceeds_activations and share > MIN_WORKSPACE_SHARE)


def _family(run: ConfigRun, memory: PeakMemory) -> str | None:
    used = layer_algorithm(run, memory.peak_path, memory.peak_phase)
    return used.family if used is not None and run.clock == "kernel" else None


def _workspace_finding(report: Report, family: str | None, group: list[tuple[ConfigRun, PeakMemory]]) -> Finding:
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
        advice=_workspace_advice(lower),
        evidence=_workspace_evidence(run, memory, family, share, lower),
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


def _workspace_advice(lower: ConfigRun | None) -> str:
    return join_sentences(
        f"Use the flags of {quoted_name(lower)} if you need less memory." if lower is not None else "",
        "Activation checkpointing does not reduce workspace.",
        "If the workspace does not fit into free memory, PyTorch uses the next algorithm that cuDNN supports, which needs less "
        "memory and is usually slower. Leave enough free memory for the speed, or measure a limit with --memory-limit.",
    )


def _workspace_evidence(
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


WORKSPACE_PEAK = Rule(
    "workspace_peak",
    f"""
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
""",
    _workspace_peak,
    "memory",
)


# The first step has no gradients and no optimizer state yet, so it should need less memory than a later one.
MIN_FACTOR: Final = 1.3
# Above this share, the first step may run out of memory on a device on which later steps fit.
LARGE_DEVICE_SHARE: Final = 0.8


def _startup_peak(report: Report) -> Iterator[Finding]:
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
        advice=_startup_advice(run),
        evidence=(
            Evidence(name="peak of the first step", value=first, unit="bytes", where=run.config.name),
            Evidence(name="peak of steady steps", value=steady, unit="bytes", where=run.config.name),
            Evidence(name="factor", value=factor, unit="ratio", where=run.config.name),
        ),
        weight=1.0 - 1.0 / factor,
    )


def _startup_advice(run: ConfigRun) -> str:
    if run.config.benchmark:
        return (
            "Choose the batch size by the peak of the first step, or try fewer algorithms "
            "(torch.backends.cudnn.benchmark_limit, 10 by default). The search skips algorithms whose workspace does not fit, so "
            "it selects slower ones on a full device."
        )
    return "Choose the batch size by the peak of the first step, not by the memory of a running job."


STARTUP_PEAK = Rule(
    "startup_peak",
    f"""
Fires if the memory peak of the first step is more than {MIN_FACTOR:g}x that of a steady step. With `cudnn.benchmark=True` the
cause is the algorithm search, which tries algorithms with large workspaces. The model may then run out of memory in the first
step, on a device on which later steps fit.

- `medium`: the baseline is affected, or the first peak is more than {limit_percent(LARGE_DEVICE_SHARE)} of the device's memory.
- `low`: otherwise.

The rule yields one finding, for the run with the largest factor. It names the other runs.
""",
    _startup_peak,
    "memory",
)

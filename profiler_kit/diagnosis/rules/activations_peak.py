"""A memory peak that consists mostly of activations saved for backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, layer_name, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.records.claims import PEAK
from profiler_kit.records.counts import ModuleMemory, StaticCount
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.units import percent, text

# Above half of the peak, no other category can lower it as much.
MIN_PEAK_SHARE: Final = 0.50
# Above this share of the device's memory, a slightly larger batch does not fit.
MAX_DEVICE_SHARE: Final = 0.80
# Checkpointing a module that saves less than this share of all activations is not worth running it twice.
MIN_MODULE_SHARE: Final = 0.10

DOC = f"""
Fires in training when activations saved for backward are at least {limit_percent(MIN_PEAK_SHARE)} of the baseline's measured
memory peak.

- `medium`: the peak is more than {limit_percent(MAX_DEVICE_SHARE)} of the device's memory.
- `info`: otherwise.

The finding names the submodule that saves most inside it, if this is at least {limit_percent(MIN_MODULE_SHARE)} of all saved
activations. Checkpointing the submodule frees these tensors. The FLOPs that it computes again are **computed from the
counts**; the configuration `checkpoint=PATH` measures the memory and the time. Checkpointing saves memory and always costs
time. It pays only if the memory allows a larger batch.
"""


def check(report: Report) -> Iterator[Finding]:
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
        advice=_advice(module, facts_of(report)),
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


def _advice(module: ModuleMemory | None, facts: Facts) -> Advice:
    alternatives = f"a smaller batch, {'' if facts.half else 'autocast to bfloat16, '}or in-place activations"
    if module is None:
        return Advice(f"To save memory, use {alternatives}.")
    return advise(
        f"To save memory, wrap {layer_name(module.path)} in {{code}}: it then saves only its inputs. Or use {alternatives}.",
        "torch.utils.checkpoint.checkpoint(..., use_reentrant=False)",
    )


RULE = Rule("activations_peak", DOC, check, "memory")

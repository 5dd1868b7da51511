"""A peak that is made of what forward keeps for backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import attempt
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.diagnosis.words import layer, quoted, sentences, threshold
from profiler_kit.records.counts import ModuleMemory, StaticCount
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.units import percent, text

# Half of the peak: nothing else can lower it as much.
SHARE: Final = 0.50
# From here on a somewhat larger batch does not fit.
OF_DEVICE: Final = 0.80
# A module that keeps less of what is kept is not worth running twice.
LEAST_INSIDE: Final = 0.10

DOC = f"""
Activations saved for backward are at least {threshold(SHARE)} of the baseline's measured peak in training: `medium` where
the peak is more than {threshold(OF_DEVICE)} of the device's memory, else `info`. Names the module that keeps most to itself
(at least {threshold(LEAST_INSIDE)} of all), which checkpointing lets go of, and what is computed again for it, **computed
from the counts**; `checkpoint=PATH` tries it. Checkpointing saves memory and costs time, never the other way round, unless
the memory buys a batch.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline."""
    run = report.baseline()
    if run is None or run.memory is None or report.target.mode != "train" or run.memory.peak_bytes <= 0:
        return
    share = min(1.0, run.memory.saved_activations / run.memory.peak_bytes)
    if share < SHARE:
        return
    device = run.environment.device_memory_bytes if run.environment is not None else None
    of_device = ratio(run.peak_allocated_bytes, device)
    module = _module(report.static)
    again = _again(report.static, module)
    tried = attempt(report, run, (f"checkpoint={module.path}",) if module is not None else ())
    saved = text(run.memory.saved_activations, "bytes")
    yield RULE.finding(
        severity="medium" if of_device is not None and of_device > OF_DEVICE else "info",
        title=f"Activations kept for backward, {saved}, are {percent(share)} of the memory peak",
        explanation=sentences(
            f"{quoted(run)} peaks at {text(run.memory.peak_bytes, 'bytes')}.",
            f"That is {percent(of_device)} of the device's memory." if of_device is not None else "",
            f"{text(module.inside_bytes, 'bytes')} are kept inside {layer(module.path)} alone."
            if module is not None
            else "",
            f"Running it again in backward adds {percent(again)} of the step's FLOPs, computed from the counts."
            if again is not None
            else "",
        ),
        advice=_advice(module),
        evidence=(
            Evidence(name="saved activations", value=run.memory.saved_activations, unit="bytes", where=run.config.name),
            Evidence(name="share of the peak", value=100.0 * share, unit="percent", where=run.config.name),
            *(known(f"{module.path}, computed", ("kept inside", module.inside_bytes, "bytes")) if module else ()),
            *known("computed", ("computed again", 100.0 * again if again is not None else None, "percent")),
        ),
        paths=(module.path,) if module is not None else (),
        attempt=tried,
        weight=share,
        computed=module is not None,
    )


def _module(static: StaticCount | None) -> ModuleMemory | None:
    """The module, not the model itself, that keeps most which nobody else keeps."""
    kept = static.memory.modules if static is not None and static.memory is not None else ()
    whole = sum(module.created_bytes for module in kept)
    inner = [module for module in kept if module.path and not module.path.startswith("(")]
    most = max(inner, key=lambda module: module.inside_bytes, default=None)
    return most if most is not None and most.inside_bytes > 0 and most.inside_bytes >= LEAST_INSIDE * whole else None


def _again(static: StaticCount | None, module: ModuleMemory | None) -> float | None:
    """The share of the step's FLOPs that running `module` again adds."""
    if static is None or module is None:
        return None
    nodes = (node for node in static.modules if f"{node.path}.".startswith(f"{module.path}."))
    return ratio(sum(node.forward.flops for node in nodes), static.step.flops)


def _advice(module: ModuleMemory | None) -> str:
    rest = "a smaller batch, autocast to bfloat16, or in-place activations keep less"
    if module is None:
        return f"Where memory is short: {rest}."
    return f"Where memory is short: torch.utils.checkpoint around {layer(module.path)} keeps its inputs alone; {rest}."


RULE = Rule("activations_peak", DOC, check, "memory")

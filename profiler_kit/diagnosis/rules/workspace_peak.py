"""Library workspace, not activations, that makes the memory peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import plain
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import layer_algorithm
from profiler_kit.diagnosis.words import capital, layer, listing, phase, quoted, sentences, threshold
from profiler_kit.records.families import family_words
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.units import percent, text

# A fifth of the peak in one op's scratch decides whether a batch fits.
PEAK_SHARE: Final = 0.20
# Workspace beyond the activations is worth a word from here on; below it there is little memory to speak of.
LEAST_SHARE: Final = 0.05
# A configuration that peaks this much lower is named as the way out.
LOWER: Final = 0.90

DOC = f"""
At the op where a step's memory peaks, the workspace the library took for itself (cuDNN scratch, layout copies) is more
than {threshold(PEAK_SHARE)} of that peak, or larger than the activations live there and more than {threshold(LEAST_SHARE)} of the
peak.

Workspace is measured: the op's own peak, less what was live before it and what it returned. It is not a leak and not
activations; a smaller batch, checkpointing or another optimizer need not move it. The finding names the op, its layer and
the algorithm that takes most of the layer's device time. One finding per layer and algorithm, for the run with the
largest workspace.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once per layer, phase and algorithm."""
    groups: dict[tuple[str, str, str | None], list[tuple[ConfigRun, PeakMemory]]] = {}
    for run in plain(report):
        memory = run.memory
        fallback = run.config.enabled is False and run is not report.baseline()  # has a finding of its own
        if memory is not None and _rules(memory) and not fallback:
            groups.setdefault((memory.peak_path, memory.peak_phase, _family(run, memory)), []).append((run, memory))
    for (_, _, family), found in groups.items():
        yield _finding(report, family, found)


def _rules(memory: PeakMemory) -> bool:
    if memory.peak_bytes <= 0:
        return False
    share = memory.workspace / memory.peak_bytes
    return share > PEAK_SHARE or (memory.workspace > memory.saved_activations and share > LEAST_SHARE)


def _family(run: ConfigRun, memory: PeakMemory) -> str | None:
    used = layer_algorithm(run, memory.peak_path, memory.peak_phase)
    return used.family if used is not None and run.clock == "kernel" else None


def _finding(report: Report, family: str | None, found: list[tuple[ConfigRun, PeakMemory]]) -> Finding:
    run, memory = max(found, key=lambda item: item[1].workspace)
    others = [quoted(other) for other, _ in found if other is not run]
    in_baseline = any(other is report.baseline() for other, _ in found)
    share = memory.workspace / memory.peak_bytes
    workspace, saved = text(memory.workspace, "bytes"), text(memory.saved_activations, "bytes")
    algorithm_words = family_words(family) if family is not None else "the library"
    whose = f"{capital(algorithm_words.partition(' (')[0])} workspace" if family is not None else "Library workspace"
    decides = memory.workspace > memory.saved_activations
    does = "not activations, makes the peak" if decides else f"is {percent(share)} of the memory peak"
    lower = _lower(report, run)
    return RULE.finding(
        severity="high" if in_baseline and decides else "medium",
        title=f"{whose} of {layer(memory.peak_path)}, {workspace}, {does} in {quoted(run)}",
        explanation=sentences(
            f"The step peaks at {text(memory.peak_bytes, 'bytes')}, in {phase(memory.peak_phase)} of "
            f"{layer(memory.peak_path)}; {percent(share)} of that is scratch memory of {algorithm_words}.",
            f"{memory.peak_op} takes these {workspace} while it runs; {saved} are activations, and parameters, gradients and "
            f"optimizer state are "
            f"{text(memory.parameters + memory.gradients + memory.optimizer_state, 'bytes')}.",
            f"It is the same in {listing(others)}." if others else "",
            _lower_words(run, lower),
        ),
        advice=_advice(lower),
        evidence=_evidence(run, memory, family, share, lower),
        paths=(memory.peak_path,),
        weight=share,
    )


def _lower(report: Report, run: ConfigRun) -> ConfigRun | None:
    """The fastest run that peaks clearly lower, to say what the workspace buys."""
    peak = run.peak_allocated_bytes
    if peak is None:
        return None
    runs = [
        (other.step_ns.median, other)
        for other in plain(report)
        if other.step_ns is not None and (other.peak_allocated_bytes or peak) < LOWER * peak
    ]
    return min(runs, key=lambda item: item[0], default=(0, None))[1]


def _lower_words(run: ConfigRun, lower: ConfigRun | None) -> str:
    if lower is None or lower.step_ns is None or run.step_ns is None:
        return ""
    return (
        f"{quoted(lower)} peaks at {text(lower.peak_allocated_bytes, 'bytes')} with a step of "
        f"{text(lower.step_ns.median, 'ns')}, {quoted(run)} at {text(run.peak_allocated_bytes, 'bytes')} with "
        f"{text(run.step_ns.median, 'ns')}."
    )


def _advice(lower: ConfigRun | None) -> str:
    return sentences(
        "Activation checkpointing cannot lower this part of the peak: it saves activations only.",
        "Where the workspace does not fit into free memory, PyTorch goes on to the next algorithm that cuDNN offers, which "
        "needs less and is usually slower: leave that much free if you want the speed, or try what a cap costs with "
        "torch.cuda.set_per_process_memory_fraction.",
        f"The flags of {quoted(lower)} need less memory here." if lower is not None else "",
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
        yield Evidence(name="algorithm", value=family_words(family), unit="text", where=where)
    if lower is not None:
        yield from known(lower.config.name, ("peak", lower.peak_allocated_bytes, "bytes"))


RULE = Rule("workspace_peak", DOC, check, "memory")

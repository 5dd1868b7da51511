"""A step that spends most of its time in layers limited by memory bandwidth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.phrases import Advice, join_list, join_sentences, layer_name, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.rules.attention_by_hand import attention_by_operators
from profiler_kit.diagnosis.rules.depthwise import depthwise_layers
from profiler_kit.diagnosis.rules.embedding_gradients import embedding_gradients
from profiler_kit.diagnosis.rules.optimizer_bound import optimizer_time
from profiler_kit.diagnosis.rules.pointwise_chain import pointwise_chain
from profiler_kit.diagnosis.rules.slice_gradients import slice_gradients
from profiler_kit.diagnosis.rules.small_operators import small_operators
from profiler_kit.diagnosis.rules.tensor_copies import tensor_copies
from profiler_kit.diagnosis.step_work import StepWork, module_claims, names_claims, step_works, trace_work
from profiler_kit.diagnosis.trace_facts import MIN_BUSY_SHARE, is_mostly_busy, kernels_ns, step_share, worst_trace
from profiler_kit.diagnosis.work_groups import is_host_copy
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.families import family_name
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.roofline import LayerBound
from profiler_kit.records.traces import TraceKernel, TraceSummary
from profiler_kit.units import percent, text

# From half of the device time on, moving fewer bytes helps more than faster arithmetic.
MIN_MEMORY_BOUND_SHARE: Final = 0.50
# A layer that takes five times its memory floor waits for something else, usually for launches and dispatch.
MIN_BANDWIDTH_SHARE: Final = 0.20
# A layer that is much faster than its memory floor reads its operands from caches: memory does not limit it.
MAX_BANDWIDTH_SHARE: Final = 1.5
# A cause that explains half of the memory-bound time has better advice than "move fewer bytes".
MIN_SPECIFIC_SHARE: Final = 0.50
# The smallest change of the training script first.
TRIES: Final = ("compile", "amp_bf16", "channels_last")

# Families with few operations per value that they read: memory-bound on every device.
MEMORY_BOUND_FAMILIES: Final = frozenset(
    {"pointwise", "norm", "pool", "reduce", "cat/copy", "index", "optimizer", "alloc", "memcpy/memset"}
)

DOC = f"""
Fires if memory-bound layers take at least {limit_percent(MIN_MEMORY_BOUND_SHARE)} of the baseline's device time. Always `medium`.
A layer is memory-bound if its bytes need more time at the peak bandwidth than its arithmetic at the peak FLOP/s. The rule needs
a roofline and a traced run.

The finding gives the share of the bandwidth that these layers reach. The counted bytes are a lower bound, with each operand moved
once. Layers that reach less than {limit_percent(MIN_BANDWIDTH_SHARE)} wait for something else, and layers that reach more than
{MAX_BANDWIDTH_SHARE:g} times the bandwidth read from caches: neither counts. Nor do recurrent layers, which read the same weights
in every time step. A step of which a specific rule explains at least half of this time gets no finding: pointwise chains, copies,
the optimizer, attention by hand, embedding gradients, gradients of slices, depthwise convolutions, and on a CPU short operators.
The device must be busy for at least {limit_percent(MIN_BUSY_SHARE)} of the step.

A trace of `inspect` has no byte counts. There, kernels of families that hardly compute are memory-bound: pointwise operations,
normalization, pooling, reductions, copies, indexing, the optimizer. The same limits hold for them. Copies between host and device
use the bus, not the memory bandwidth, and do not count.
"""


def has_specific_cause(work: StepWork, static: StaticCount | None, share: float) -> bool:
    """Return whether rules about causes explain half of `share`, the memory-bound share of the step."""
    matches = (
        pointwise_chain(work),
        tensor_copies(work),
        optimizer_time(work),
        embedding_gradients(work, static),
        attention_by_operators(work),
        depthwise_layers(work, static),
        slice_gradients(work),
        small_operators(work),
    )
    return math.fsum(match.share for match in matches if match is not None) >= MIN_SPECIFIC_SHARE * share


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    line = report.roofline_of(run) if run is not None else None
    if run is None or line is None or not run.device_ns:
        return
    recurrent = {layer.path for layer in run.modules if any(k.family.startswith("rnn") for k in layer.kernels)}
    layers = [item for item in line.layers if _is_at_bandwidth(item) and item.path not in recurrent]
    layers.sort(key=lambda item: -(item.time_ns or 0))
    layers_ns = sum(item.time_ns or 0 for item in layers)
    share = layers_ns / run.device_ns
    work = next(step_works(report), None)
    if share < MIN_MEMORY_BOUND_SHARE or work is None or work.busy_ns < MIN_BUSY_SHARE * work.span_ns:
        return
    weight = share * work.busy_ns / work.span_ns
    bandwidth_share = min(1.0, math.fsum(item.floor_ns for item in layers) / layers_ns)
    if has_specific_cause(work, report.static, weight):
        return
    trials = find_trials(report, run, TRIES)
    source = "measured" if line.roof.source == "measured" else "datasheet"
    clock = clock_name(run.clock)
    yield RULE.finding(
        severity="medium",
        title=f"Memory-bound: layers limited by memory bandwidth take {percent(share)} of the {clock}",
        explanation=join_sentences(
            f"In {quoted_name(run)} these layers take {text(layers_ns, 'ns')} per step. At the {source} bandwidth of "
            f"{text(line.roof.bandwidth_bytes_per_s, 'bytes/s')}, their bytes need {percent(bandwidth_share)} of this time.",
            f"The largest: {join_list(_largest_layers(layers))}.",
            trials.sentence(),
        ),
        advice=_advice(facts_of(report), work, compiled=False),
        evidence=(
            Evidence(name=f"share of {clock}", value=100.0 * share, unit="percent", where=run.config.name),
            Evidence(name="time of memory-bound layers", value=layers_ns, unit="ns", where=run.config.name),
            *evidence_of(run.config.name, ("share of peak bandwidth", 100.0 * bandwidth_share, "percent")),
        ),
        paths=(item.path for item in layers),
        trials=trials,
        weight=weight,
        claims=module_claims(item.path for item in layers),
    )


def _is_at_bandwidth(layer: LayerBound) -> bool:
    """Whether memory limits the layer, and its time is near the shortest that the bandwidth allows."""
    if layer.binds != "memory" or not layer.time_ns:
        return False
    return MIN_BANDWIDTH_SHARE * layer.time_ns <= layer.floor_ns <= MAX_BANDWIDTH_SHARE * layer.time_ns


def _largest_layers(layers: list[LayerBound]) -> list[str]:
    times: Counter[str] = Counter()
    for item in layers:
        times[item.path] += item.time_ns or 0
    return [f"{layer_name(path)} {text(ns, 'ns')}" for path, ns in times.most_common(3)]


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest share of memory-bound kernels."""
    if (worst := worst_trace(report, _memory_bound_share, lambda share: share)) is None:
        return
    trace, share = worst.trace, worst.match
    times: Counter[str] = Counter()
    for kernel in trace.kernels:
        if _is_memory_bound(kernel):
            times[kernel.family] += kernel.kernel_ns
    largest = [f"{family_name(family)} {text(ns, 'ns')}" for family, ns in times.most_common(3)]
    yield RULE.finding(
        severity="medium",
        title=f"Memory-bound: kernels limited by memory bandwidth take {percent(share)} of the device time",
        explanation=join_sentences(
            f"{worst.sentence_prefix}Kernels that move bytes and hardly compute take {text(times.total(), 'ns')}. "
            f"The largest: {join_list(largest)}.",
            worst.others_sentence(),
        ),
        advice=_advice(facts_of(trace), trace_work(trace, ""), compiled=trace.compiled),
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=worst.where),
            *(
                Evidence(name=family_name(family), value=times[family], unit="ns", where=worst.where)
                for family in sorted(times)
            ),
        ),
        weight=step_share(trace, times.total()),
        claims=names_claims(kernel.name for kernel in trace.kernels if _is_memory_bound(kernel)),
    )


def _advice(facts: Facts, work: StepWork, *, compiled: bool) -> Advice:
    """Return the advice, without compiling or 16 bits where the program uses them already."""
    options = [] if compiled else ["fuse operations with model = torch.compile(model)"]
    options += [] if facts.half else [f"use a smaller data type with {work.autocast}"]
    options += [] if compiled else ["in-place activations"]
    last = "or fewer and smaller activations" if options else "fewer and smaller activations"
    code = "model = torch.compile(model)" if not compiled else "" if facts.half else work.autocast
    return Advice(f"Move fewer bytes: {', '.join([*options, last])}.", code)


def _memory_bound_share(trace: TraceSummary) -> float | None:
    if not is_mostly_busy(trace):
        return None
    share = kernels_ns(trace, _is_memory_bound) / trace.busy_ns
    if share < MIN_MEMORY_BOUND_SHARE:
        return None
    is_explained = has_specific_cause(trace_work(trace, ""), None, step_share(trace, share * trace.busy_ns))
    return None if is_explained else share


def _is_memory_bound(kernel: TraceKernel) -> bool:
    return kernel.family in MEMORY_BOUND_FAMILIES and not is_host_copy(kernel.name)


# Fusing two operations halves their traffic, and so does a type of half the size.
KEEPS: Final = 0.5

RULE = Rule("memory_bound", DOC, check, "place", check_trace, states_share=False, keeps=KEEPS)

"""A step that spends most of its time in layers limited by memory bandwidth."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.phrases import Advice, join_list, layer_name, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, step_rule
from profiler_kit.diagnosis.step_work import MIN_BUSY_SHARE, StepWork
from profiler_kit.diagnosis.work_groups import is_host_copy
from profiler_kit.records.claims import Claim, kernel_claims, module_claims
from profiler_kit.records.families import family_name
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.roofline import LayerBound, Roofline
from profiler_kit.units import percent, text

# From half of the device time on, moving fewer bytes helps more than faster arithmetic.
MIN_MEMORY_BOUND_SHARE: Final = 0.50
# A layer that takes five times its memory floor waits for something else, usually for launches and dispatch.
MIN_BANDWIDTH_SHARE: Final = 0.20
# A layer that is much faster than its memory floor reads its operands from caches: memory does not limit it.
MAX_BANDWIDTH_SHARE: Final = 1.5
# The healthy steps of the benchmark spend up to three fifths in such work.
LARGE_MEMORY_BOUND_SHARE: Final = 0.75
# The smallest change of the training script first.
TRIES: Final = ("compile", "amp_bf16", "channels_last")

# Families with few operations per value that they read: memory-bound on every device.
MEMORY_BOUND_FAMILIES: Final = frozenset(
    {"pointwise", "norm", "pool", "reduce", "cat/copy", "index", "optimizer", "alloc", "memcpy/memset"}
)

DOC = f"""
Fires if memory-bound work takes at least {limit_percent(MIN_MEMORY_BOUND_SHARE)} of the device time, and the device is busy for
at least {limit_percent(MIN_BUSY_SHARE)} of the step. `medium` from {limit_percent(LARGE_MEMORY_BOUND_SHARE)} of the device time
on, `low` below: normalization, activations and the optimizer often take half of a sound step.

With a roofline, a layer is memory-bound if its bytes need more time at the peak bandwidth than its arithmetic at the peak
FLOP/s. The finding gives the share of the bandwidth that these layers reach. The counted bytes are a lower bound, with each
operand moved once. Layers that reach less than {limit_percent(MIN_BANDWIDTH_SHARE)} wait for something else, and layers that
reach more than {MAX_BANDWIDTH_SHARE:g} times the bandwidth read from caches: neither counts. Nor do recurrent layers, which read
the same weights in every time step.

Without byte counts, as in a trace, kernels of families that hardly compute are memory-bound: pointwise operations,
normalization, pooling, reductions, copies, indexing, the optimizer. Copies between host and device use the bus, not the memory
bandwidth, and do not count. Findings that say why such work is slow (pointwise chains, copies, attention by hand) precede this
one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryWork:
    """The work that memory limits. `times`: its time by name, longest first. `floor_ns`: what its bytes need; None if unknown."""

    kind: str
    times: dict[str, int]
    claims: tuple[Claim, ...]
    paths: tuple[str, ...] = ()
    floor_ns: float | None = None

    @property
    def ns(self) -> int:
        """The time of all of it."""
        return sum(self.times.values())

    @property
    def bandwidth_percent(self) -> float | None:
        """The share of the peak bandwidth that it reaches at least, in percent."""
        return 100.0 * min(1.0, self.floor_ns / self.ns) if self.floor_ns is not None else None


def _memory_bound(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    work = _memory_work(report, step)
    if work is None:
        return None
    share, trials = step.share(work.ns), trials_of(report, *TRIES)
    largest = [f"{name} {text(ns, 'ns')}" for name, ns in list(work.times.items())[:3]]
    return StepPart(
        share=share,
        severity="medium" if work.ns >= LARGE_MEMORY_BOUND_SHARE * step.busy_ns else "low",
        title=f"Memory-bound: {work.kind} limited by memory bandwidth take {percent(share)} of the {step.facts.whole}",
        sentences=(
            f"These {work.kind} take {text(work.ns, 'ns')} of {step.clock_name} {step.per_step}. The largest: "
            f"{join_list(largest)}.",
            _bandwidth(report, work),
            trials.sentence(),
        ),
        advice=_advice(step),
        measures=(
            *((name, ns, "ns") for name, ns in sorted(work.times.items())),
            ("share of peak bandwidth", work.bandwidth_percent, "percent"),
        ),
        paths=work.paths,
        trials=trials,
        claims=work.claims,
    )


def _memory_work(report: Report | TraceReport, step: StepWork) -> _MemoryWork | None:
    """Return the memory-bound work of a step, by the roofline of a report or else by kernel families; None below the limits."""
    line = report.roofline_of(report.baseline()) if isinstance(report, Report) else None
    work = _by_roofline(step, line) if line is not None else _by_families(step)
    is_busy = step.busy_ns >= MIN_BUSY_SHARE * step.span_ns and (step.on_device or line is not None)
    return work if is_busy and work.ns >= MIN_MEMORY_BOUND_SHARE * step.busy_ns else None


def _by_roofline(step: StepWork, line: Roofline) -> _MemoryWork:
    recurrent = {m.path for m in step.trace.modules if any(k.family.startswith("rnn") for k in m.kernels)}
    layers = [item for item in line.layers if _is_at_bandwidth(item) and item.path not in recurrent]
    times: Counter[str] = Counter()
    for item in layers:
        times[item.path] += (item.time_ns or 0) * step.steps
    return _MemoryWork(
        kind="layers",
        times={layer_name(path): ns for path, ns in times.most_common()},
        claims=module_claims(times),
        paths=tuple(path for path, _ in times.most_common()),
        floor_ns=step.steps * math.fsum(item.floor_ns for item in layers),
    )


def _by_families(step: StepWork) -> _MemoryWork:
    kernels = step.select(lambda kernel: kernel.family in MEMORY_BOUND_FAMILIES and not is_host_copy(kernel.name))
    times: Counter[str] = Counter()
    for kernel in kernels:
        times[family_name(kernel.family)] += kernel.ns
    return _MemoryWork(
        kind="kernels", times=dict(times.most_common()), claims=kernel_claims(kernel.name for kernel in kernels)
    )


def _is_at_bandwidth(layer: LayerBound) -> bool:
    """Whether memory limits the layer, and its time is near the shortest that the bandwidth allows."""
    if layer.binds != "memory" or not layer.time_ns:
        return False
    return MIN_BANDWIDTH_SHARE * layer.time_ns <= layer.floor_ns <= MAX_BANDWIDTH_SHARE * layer.time_ns


def _bandwidth(report: Report | TraceReport, work: _MemoryWork) -> str:
    line = report.roofline_of(report.baseline()) if isinstance(report, Report) else None
    if line is None or work.bandwidth_percent is None:
        return ""
    source = "measured" if line.roof.source == "measured" else "datasheet"
    return (
        f"At the {source} bandwidth of {text(line.roof.bandwidth_bytes_per_s, 'bytes/s')}, their bytes need "
        f"{percent(work.bandwidth_percent / 100.0)} of this time."
    )


def _advice(step: StepWork) -> Advice:
    """Return the advice, without compiling or 16 bits where the program uses them already."""
    compiled, is_half = step.trace.compiled, step.facts.half
    options = [] if compiled else ["fuse operations with model = torch.compile(model)"]
    options += [] if is_half else [f"use a smaller data type with {step.autocast}"]
    options += [] if compiled else ["in-place activations"]
    last = "or fewer and smaller activations" if options else "fewer and smaller activations"
    code = "model = torch.compile(model)" if not compiled else "" if is_half else step.autocast
    return Advice(f"Move fewer bytes: {', '.join([*options, last])}.", code)


# Fusing two operations halves their traffic, and so does a type of half the size.
RULE = step_rule("memory_bound", DOC, _memory_bound, "place", states_share=False, keeps=0.5)

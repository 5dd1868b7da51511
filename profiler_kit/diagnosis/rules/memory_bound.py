"""A step whose time goes into layers that move bytes rather than multiply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import attempt
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.traced import MIN_BUSY_SHARE, gravest, is_mostly_busy, kernels_ns
from profiler_kit.diagnosis.words import layer, listing, quoted, sentences, threshold
from profiler_kit.records.families import family_words
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.roofline import LayerBound
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# Half of the device time: moving fewer bytes then helps more than any faster arithmetic.
SHARE: Final = 0.50
# First what changes least of the training script.
TRIES: Final = ("compile", "amp_bf16", "channels_last")

# What computes a few operations for each number it reads, and so waits for memory on any device there is.
MOVING: Final = frozenset(
    {"pointwise", "norm", "pool", "reduce", "cat/copy", "index", "optimizer", "alloc", "memcpy/memset"}
)

ADVICE: Final = (
    "Move fewer bytes: fuse pointwise operations (torch.compile), take a smaller data type (autocast to bfloat16), in-place "
    "activations, or fewer and smaller activations."
)

DOC = f"""
Layers that the roofline calls memory-bound (their bytes need longer than their arithmetic, at the ceilings) take at least
{threshold(SHARE)} of the baseline's device time: `medium`. How near the bandwidth they come is said, as time that is left is for
launching and for bytes moved more than once. Bytes are a lower bound, each operand once. Needs a roof and a traced run.

A trace that `inspect` reads tells no bytes, but kinds of kernels that hardly compute are memory-bound by what they are: pointwise
operations, normalisation, pooling, reductions, copies, indexing, the optimizer. They count by the same share, where the
device works for at least {threshold(MIN_BUSY_SHARE)} of the span.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline."""
    run = report.baseline()
    line = report.roofline_of(run) if run is not None else None
    if run is None or line is None or not run.device_ns:
        return
    bound = [item for item in line.layers if item.binds == "memory" and item.time_ns]
    bound.sort(key=lambda item: -(item.time_ns or 0))
    spent = sum(item.time_ns or 0 for item in bound)
    share = spent / run.device_ns
    if share < SHARE:
        return
    tried = attempt(report, run, TRIES)
    source = "as measured" if line.roof.source == "measured" else "by the datasheet"
    reached = min(1.0, sum(one.floor_ns for one in bound) / spent)
    yield RULE.finding(
        severity="medium",
        title=f"Memory-bound: layers that move bytes rather than multiply take {percent(share)} of the device time",
        explanation=sentences(
            f"In {quoted(run)} they take {text(spent, 'ns')} a step; at {text(line.roof.bandwidth_bytes_per_s, 'bytes/s')} "
            f"({source}) their bytes need {percent(reached)} of that.",
            f"Most of it: {listing(_places(bound))}.",
            tried.sentence(),
        ),
        advice=ADVICE,
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=run.config.name),
            Evidence(name="memory-bound layers' time", value=spent, unit="ns", where=run.config.name),
            *known(run.config.name, ("share of the bandwidth reached", 100.0 * reached, "percent")),
        ),
        paths=(one.path for one in bound),
        attempt=tried,
        weight=share,
    )


def _places(bound: list[LayerBound]) -> list[str]:
    times: Counter[str] = Counter()
    for item in bound:
        times[item.path] += item.time_ns or 0
    return [f"{layer(path)} {text(ns, 'ns')}" for path, ns in times.most_common(3)]


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the trace whose kernels move bytes for the largest share."""
    if (seen := gravest(report, _moving, lambda share: share)) is None:
        return
    trace, share = seen.trace, seen.found
    times: Counter[str] = Counter()
    for kernel in trace.kernels:
        if kernel.family in MOVING:
            times[kernel.family] += kernel.kernel_ns
    most = [f"{family_words(family)} {text(ns, 'ns')}" for family, ns in times.most_common(3)]
    yield RULE.finding(
        severity="medium",
        title=f"Memory-bound: kernels that move bytes rather than multiply take {percent(share)} of the device time",
        explanation=sentences(
            f"{seen.place}{text(times.total(), 'ns')} go into kernels that hardly compute, most of it into {listing(most)}.",
            seen.others(),
        ),
        advice=ADVICE,
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=seen.where),
            *(
                Evidence(name=family_words(family), value=times[family], unit="ns", where=seen.where)
                for family in sorted(times)
            ),
        ),
        weight=share,
    )


def _moving(trace: TraceSummary) -> float | None:
    share = kernels_ns(trace, lambda kernel: kernel.family in MOVING) / trace.busy_ns if is_mostly_busy(trace) else 0.0
    return share if share >= SHARE else None


RULE = Rule("memory_bound", DOC, check, "place", check_trace)

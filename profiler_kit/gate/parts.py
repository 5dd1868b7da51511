"""The parts of a metric: the modules, or the purposes of memory, that have most of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from profiler_kit.gate.metrics import GateMetric, matches_pattern
from profiler_kit.records.counts import MemoryEstimate
from profiler_kit.records.report import Report
from profiler_kit.units import plural, text

MAX_PARTS: Final = 3


def largest_parts(report: Report, metric: GateMetric, pattern: str = "") -> str:
    """The largest parts of `metric` as a sentence: ``Largest: conv2 (Conv2d) 3.9 G, 93.0 %; 4 others 7.0 %``.

    Parts are modules without their children, of those that `pattern` selects. The parts of the peak are purposes, and the
    modules that save most of it. Empty for a metric that has no parts.
    """
    static = report.static
    if static is None:
        return ""
    if metric.of_module is not None:
        nodes = [node for node in static.modules if not pattern or matches_pattern(node.path, pattern)]
        parts = [(f"{node.path or 'the model itself'} ({node.class_name})", metric.of_module(node)) for node in nodes]
        return _sentence("Largest", parts, metric)
    return _peak_parts(static.memory, metric) if metric.key == "peak" and static.memory is not None else ""


def _peak_parts(memory: MemoryEstimate, metric: GateMetric) -> str:
    categories = [
        (field.name.replace("_", " "), getattr(memory.categories, field.name) or 0)
        for field in fields(memory.categories)
    ]
    modules = (
        memory.modules if memory.categories.saved_activations else ()
    )  # nothing saved is alive in the optimizer's step
    saved = [(module.path or "the model itself", module.created_bytes) for module in modules]
    sentences = [
        f"The peak is at {memory.peak_at}.",
        _sentence("It consists of", categories, metric, count=len(categories)),
        _sentence("Saved for backward, largest", saved, metric),
    ]
    return " ".join(filter(None, sentences))


def _sentence(title: str, parts: Sequence[tuple[str, int]], metric: GateMetric, count: int = MAX_PARTS) -> str:
    total = sum(value for _, value in parts)
    ordered = sorted((part for part in parts if part[1] > 0), key=lambda part: -part[1])
    if not ordered:
        return ""
    shown = [f"{name} {text(value, metric.unit)}, {_share(value, total)}" for name, value in ordered[:count]]
    rest = ordered[count:]
    if rest:
        shown.append(f"{plural(len(rest), 'other')} {_share(sum(value for _, value in rest), total)}")
    return f"{title}: {'; '.join(shown)}."


def _share(value: int, total: int) -> str:
    return text(100 * value / total, "percent")

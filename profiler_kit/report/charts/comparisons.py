"""The charts of comparisons: what makes up the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from profiler_kit.records.comparison import Comparison
from profiler_kit.records.document import Chart
from profiler_kit.records.paths import shown_path
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.units import Unit

# The largest changes have a bar each; the others share one.
MAX_CHANGES: Final = 14


def layer_waterfall(comparison: Comparison) -> Iterator[Chart]:
    """The difference of two reports by layer, in device time where both sides have it, else in FLOPs."""
    timed = all(layer.device_ns_change is not None for layer in comparison.layers) and comparison.config is not None
    changes = [
        (shown_path(layer.path), layer.device_ns_change or 0 if timed else layer.b.flops - layer.a.flops)
        for layer in comparison.layers
    ]
    start = sum((layer.a.device_ns or 0) if timed else layer.a.flops for layer in comparison.layers)
    yield from _waterfall(
        (comparison.a.label, comparison.b.label), start, changes, "ns" if timed else "flops", "Difference by layer"
    )


def trace_waterfall(compared: TraceComparison) -> Iterator[Chart]:
    """The difference of two traces by phase and cause of idle time."""
    changes = [(change.name, change.change_ns) for change in compared.phases]
    changes += [(f"idle: {change.name}", change.change_ns) for change in compared.causes]
    labels = (compared.a.label, compared.b.label)
    yield from _waterfall(
        labels, compared.span.a_ns, changes, "ns", f"Difference by phase and idle cause, per {compared.per}"
    )


def _waterfall(
    labels: tuple[str, str], start: int, changes: Sequence[tuple[str, int]], unit: Unit, title: str
) -> Iterator[Chart]:
    ordered = sorted((change for change in changes if change[1]), key=lambda change: -abs(change[1]))
    if not ordered:
        return
    largest, others = ordered[:MAX_CHANGES], ordered[MAX_CHANGES:]
    largest += [(f"({len(others)} more)", sum(change for _, change in others))] if others else []
    rows = [{"name": labels[0], "start": 0, "end": start, "total": True}]
    for name, change in largest:
        rows.append({"name": name, "start": start, "end": start + change, "total": False})
        start += change
    rows.append({"name": labels[1], "start": 0, "end": start, "total": True})
    yield Chart(
        kind="waterfall",
        name="waterfall",
        title=title,
        text=f"From {labels[0]} to {labels[1]}: each bar begins where the one above ends. Orange adds, blue saves.",
        data={"unit": unit, "rows": rows},
    )

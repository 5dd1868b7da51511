"""Compares two reports: headline metrics, time and memory taken apart, the layers that make the difference."""

from __future__ import annotations

from profiler_kit.errors import NotComparableError
from profiler_kit.gate.layers import device_times, layer_changes
from profiler_kit.gate.metrics import METRICS, static_reason, value_of
from profiler_kit.gate.ratios import memory_splits, time_ratio
from profiler_kit.gate.timed import environment_reason, measured_rows
from profiler_kit.gate.words import notes, sentences, telling
from profiler_kit.records.comparison import Comparison, LayerChange, MetricRow, Side, Verdict
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun


def compare(a: Report, b: Report, *, labels: tuple[str, str] | None = None) -> Comparison:
    """What differs between two reports, and why. `labels` are what sentences call the sides (default: the targets' names).

    Raises:
        NotComparableError: not one metric compares.
    """
    sides = _sides(a, b, labels)
    shared = _shared_runs(a, b)
    metrics = (*_static_rows(a, b), *measured_rows(a, b, sides, shared))
    if all(row.verdict in ("not_comparable", "failed") for row in metrics):
        reasons = sorted({row.reason for row in metrics if row.reason})
        raise NotComparableError(
            f"{sides[0].label} and {sides[1].label} have nothing that can be compared: {'; '.join(reasons)}",
            hint="make both reports with the same torch and options, on the same device",
        )
    alike = [pair for pair in shared if not environment_reason(a, b, *pair)]
    times = tuple(found for pair in alike if (found := time_ratio(a, b, *pair, sides)) is not None)
    memory = memory_splits(a, b, alike)
    traced = next((pair for pair in alike if _traced_alike(*pair)), None)
    layers: tuple[LayerChange, ...] = ()
    if a.static is not None and b.static is not None:
        layers = layer_changes(a.static, b.static, *(traced or (None, None)))
    configs = telling(a, times)
    return Comparison(
        a=sides[0],
        b=sides[1],
        config=traced[0].config.name if traced else None,
        clock=traced[0].clock if traced else None,
        metrics=metrics,
        times=times,
        memory=memory,
        layers=layers,
        sentences=sentences(a, b, sides, times, memory, layers, configs),
        telling=configs,
        notes=notes(a, b, sides, shared),
    )


def _shared_runs(a: Report, b: Report) -> tuple[tuple[ConfigRun, ConfigRun], ...]:
    """The runs of every configuration that both reports have, a's baseline first; repetitions are left out."""
    first = a.baseline()
    pairs = [(run, other) for run in a.runs if run.config.repeat_of is None and (other := b.run(run.config.name))]
    return tuple(sorted(pairs, key=lambda pair: pair[0] is not first))


def _traced_alike(one: ConfigRun, other: ConfigRun) -> bool:
    return device_times(one) is not None and device_times(other) is not None and one.clock == other.clock


def _static_rows(a: Report, b: Report) -> tuple[MetricRow, ...]:
    rows = []
    for metric in METRICS:
        before, after = value_of(a, metric), value_of(b, metric)
        if not metric.headline or (before is None and after is None):
            continue
        reason = static_reason(a, b, metric)
        rows.append(
            MetricRow(
                metric=metric.key,
                title=metric.title,
                unit=metric.unit,
                config=None,
                a=before,
                b=after,
                ratio=after / before if before and after is not None else None,
                verdict="not_comparable" if reason else _exact(before, after),
                reason=reason,
            )
        )
    return tuple(rows)


def _exact(before: int | None, after: int | None) -> Verdict:
    if before is None or after is None or before == after:
        return "same"
    return "better" if after < before else "worse"


def _sides(a: Report, b: Report, labels: tuple[str, str] | None) -> tuple[Side, Side]:
    names = labels or (a.target.name, b.target.name)
    if names[0] == names[1]:
        places = _told_apart(a.target.spec, b.target.spec)
        names = (f"{names[0]} ({places[0]})", f"{names[1]} ({places[1]})")
    return _side(a, names[0]), _side(b, names[1])


def _told_apart(one: str, other: str) -> tuple[str, str]:
    """What differs between two TARGET texts, as short as may be: file names, with as many folders as it takes; else A and B."""
    steps = [text.replace("\\", "/").split("/") for text in (one, other)]
    for count in range(1, max(map(len, steps)) + 1):
        ends = ["/".join(parts[-count:]) for parts in steps]
        if ends[0] != ends[1]:
            return ends[0], ends[1]
    return "A", "B"


def _side(report: Report, label: str) -> Side:
    target = report.target
    return Side(
        label=label,
        name=target.name,
        spec=target.spec,
        mode=target.mode,
        inputs=target.inputs,
        samples=next((one.shape[0] for one in target.inputs if one.shape), None),
    )

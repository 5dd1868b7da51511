"""Compares two reports: headline metrics, time and memory taken apart, the layers that make the difference."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.comparison.cases import Case
from profiler_kit.comparison.efficiency import efficiency_split
from profiler_kit.comparison.explanations import explanations
from profiler_kit.comparison.layers import device_times, layer_changes
from profiler_kit.comparison.ratios import memory_splits, time_ratio
from profiler_kit.comparison.timed import STEP_TIME, environment_reason, measured_rows
from profiler_kit.comparison.words import notes, sentences, telling
from profiler_kit.errors import NotComparableError
from profiler_kit.records.comparison import Comparison, LayerChange, MemorySplit, MetricRow, Side, TimeRatio, Verdict
from profiler_kit.records.metrics import METRICS, static_reason, value_of
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun

ALIKE: Final = ("noise", "same")


def compare(a: Report, b: Report, *, labels: tuple[str, str] | None = None) -> Comparison:
    """What differs between two reports, and why. `labels` are what sentences call the sides (default: the targets' names).

    Raises:
        NotComparableError: not one metric compares, or the two count work by different conventions.
    """
    sides = _sides(a, b, labels)
    conventions = [report.static.convention_name for report in (a, b) if report.static is not None]
    if len(set(conventions)) > 1:
        raise NotComparableError(
            f"{sides[0].label} counts work by the convention {conventions[0]}, {sides[1].label} by {conventions[1]}",
            hint="make both reports with the same --convention",
        )
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
    told = [pair for pair in alike if pair[0].config.name in configs]
    noisy = _noisy(metrics)
    differing = [pair for pair in told if pair[0].config.name not in noisy]  # elsewhere there is nothing to explain
    splits = [efficiency_split(a, b, pair, sides, layers) for pair in differing]
    efficiencies = tuple(split for split in splits if split is not None)
    tested = explanations(_cases(a, b, sides, told, times, memory, noisy))
    compared = Comparison(
        a=sides[0],
        b=sides[1],
        config=traced[0].config.name if traced else None,
        clock=traced[0].clock if traced else None,
        metrics=metrics,
        times=times,
        memory=memory,
        layers=layers,
        sentences=(),
        telling=configs,
        notes=notes(a, b, sides, shared),
        convention=conventions[0] if conventions else None,
        efficiencies=efficiencies,
        explanations=tested,
    )
    return replace(compared, sentences=sentences(compared, a.static, b.static, noisy))


def _noisy(metrics: Sequence[MetricRow]) -> frozenset[str]:
    """The configurations under which the two steps take the same time, as far as can be told."""
    return frozenset(row.config for row in metrics if row.config and row.metric == STEP_TIME and row.verdict in ALIKE)


def _cases(
    a: Report,
    b: Report,
    sides: tuple[Side, Side],
    pairs: Sequence[tuple[ConfigRun, ConfigRun]],
    times: Sequence[TimeRatio],
    memory: Sequence[MemorySplit],
    noisy: Collection[str],
) -> tuple[Case, ...]:
    """What usual explanations are tested on: the telling configurations; where no memory was measured, the predicted one too."""
    cases = [
        Case(
            a=a,
            b=b,
            sides=sides,
            runs=pair,
            time=next((one for one in times if one.config == pair[0].config.name), None),
            memory=next((one for one in memory if one.config == pair[0].config.name), None),
            same_time=pair[0].config.name in noisy,
        )
        for pair in pairs
    ]
    if all(split.config is None for split in memory):
        cases += [Case(a=a, b=b, sides=sides, memory=split) for split in memory]
    return tuple(cases)


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

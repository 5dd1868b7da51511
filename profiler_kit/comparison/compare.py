"""Comparison of two reports: metrics, time and memory split into causes, and the layers that differ."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.comparison.efficiency import efficiency_split
from profiler_kit.comparison.explanations import explanations
from profiler_kit.comparison.layers import device_times, model_changes
from profiler_kit.comparison.measured_metrics import (
    STEP_TIME,
    environment_reason,
    has_same_examples,
    measured_rows,
    run_reason,
)
from profiler_kit.comparison.ratios import Case, memory_splits, time_ratio
from profiler_kit.comparison.reasons import metric_reasons
from profiler_kit.comparison.sentences import notes, representative_configs, sentences
from profiler_kit.comparison.traces import compare_steps
from profiler_kit.errors import NotComparableError
from profiler_kit.records.comparison import Comparison, MemorySplit, MetricRow, Side, TimeRatio, Verdict
from profiler_kit.records.metrics import METRICS, reason_not_comparable, value_of
from profiler_kit.records.report import Report, baseline_of
from profiler_kit.records.runs import ConfigRun

UNCHANGED_VERDICTS: Final = ("noise", "same", "unknown")


def compare(a: Report, b: Report, *, labels: tuple[str, str] | None = None, one_model: bool = False) -> Comparison:
    """Compare two reports and explain the differences. `labels` name the sides in sentences (default: the targets' names).

    `one_model`: the reports must be of two versions of one model, as in a review.

    Raises:
        NotComparableError: no metric is comparable, or the reports count work by different conventions.
    """
    sides = _sides(a, b, labels)
    conventions = [report.static.convention_name for report in (a, b) if report.static is not None]
    if len(set(conventions)) > 1:
        raise NotComparableError(
            f"{sides[0].label} counts work by the convention {conventions[0]}, {sides[1].label} by {conventions[1]}",
            hint="make both reports with the same --convention",
        )
    shared_runs = _shared_runs(a, b)
    metrics = (*_static_rows(a, b, one_model), *measured_rows(a, b, sides, shared_runs))
    if all(row.verdict in ("not_comparable", "failed") for row in metrics):
        reasons = sorted({row.reason for row in metrics if row.reason})
        raise NotComparableError(
            f"no metric of {sides[0].label} and {sides[1].label} is comparable: {'; '.join(reasons)}",
            hint="make both reports with the same torch and options, on the same device",
        )
    comparable_runs = [
        pair for pair in shared_runs if not environment_reason(a, b, *pair) and _compare_per_example(a, b, pair, sides)
    ]
    times = tuple(ratio for pair in comparable_runs if (ratio := time_ratio(a, b, *pair, sides)) is not None)
    peak_refused = any(row.metric == "peak" and row.verdict == "not_comparable" for row in metrics)
    memory_runs = [pair for pair in comparable_runs if not run_reason(a, b, *pair, sides)]
    memory = memory_splits(a, b, memory_runs, with_predicted=not peak_refused)
    traced_pair = next((pair for pair in comparable_runs if _share_trace_clock(*pair)), None)
    changes = model_changes(a, b, *(traced_pair or (None, None)))
    config_names = representative_configs(a, times)
    representative_runs = [pair for pair in comparable_runs if pair[0].config.name in config_names]
    noisy_configs = _noisy_configs(metrics)
    # a step time within noise leaves no difference to explain
    differing_runs = [pair for pair in representative_runs if pair[0].config.name not in noisy_configs]
    splits = [efficiency_split(a, b, pair, sides, changes.layers) for pair in differing_runs]
    comparison = Comparison(
        a=sides[0],
        b=sides[1],
        config=traced_pair[0].config.name if traced_pair else None,
        clock=traced_pair[0].clock if traced_pair else None,
        metrics=metrics,
        times=times,
        memory=memory,
        layers=changes.layers,
        sentences=(),
        telling=config_names,
        notes=notes(a, b, sides, metrics, shared_runs),
        convention=conventions[0] if conventions else None,
        efficiencies=tuple(split for split in splits if split is not None),
        explanations=explanations(_cases(a, b, sides, representative_runs, times, memory, noisy_configs)),
        edits=changes.edits,
        consequences=changes.consequences,
        groups=changes.groups,
        reasons=metric_reasons(a, b, metrics, changes, memory, times),
        checkpoint=changes.checkpoint,
        steps=compare_steps(*traced_pair, (sides[0].label, sides[1].label)) if traced_pair else None,
        exact=not any(
            report.static.uncounted or report.static.bounds for report in (a, b) if report.static is not None
        ),
    )
    return replace(comparison, sentences=sentences(comparison, a.static, b.static, noisy_configs))


def _compare_per_example(a: Report, b: Report, pair: tuple[ConfigRun, ConfigRun], sides: tuple[Side, Side]) -> bool:
    """Whether the times of two runs compare, as they are or per example."""
    return has_same_examples(a, b) or not run_reason(a, b, *pair, sides)


def _noisy_configs(metrics: Sequence[MetricRow]) -> frozenset[str]:
    """The configurations whose two step times are equal or differ by no more than noise."""
    return frozenset(
        row.config for row in metrics if row.config and row.metric == STEP_TIME and row.verdict in UNCHANGED_VERDICTS
    )


def _cases(
    a: Report,
    b: Report,
    sides: tuple[Side, Side],
    run_pairs: Sequence[tuple[ConfigRun, ConfigRun]],
    times: Sequence[TimeRatio],
    memory: Sequence[MemorySplit],
    noisy_configs: Collection[str],
) -> tuple[Case, ...]:
    """One case per representative configuration; also the predicted memory if no peak was measured."""
    cases = [
        Case(
            a=a,
            b=b,
            sides=sides,
            runs=run_pair,
            time=next((ratio for ratio in times if ratio.config == run_pair[0].config.name), None),
            memory=next((split for split in memory if split.config == run_pair[0].config.name), None),
            same_time=run_pair[0].config.name in noisy_configs,
        )
        for run_pair in run_pairs
    ]
    if all(split.config is None for split in memory):
        cases += [Case(a=a, b=b, sides=sides, memory=split) for split in memory]
    return tuple(cases)


def _shared_runs(a: Report, b: Report) -> tuple[tuple[ConfigRun, ConfigRun], ...]:
    """The pairs of runs with one configuration, a's baseline first. Repeats are left out."""
    baseline = a.baseline()
    pairs = [
        (a_run, b_run) for a_run in a.runs if a_run.config.repeat_of is None and (b_run := b.run(a_run.config.name))
    ]
    return tuple(sorted(pairs, key=lambda pair: pair[0] is not baseline))


def _share_trace_clock(a_run: ConfigRun, b_run: ConfigRun) -> bool:
    return device_times(a_run) is not None and device_times(b_run) is not None and a_run.clock == b_run.clock


def _static_rows(a: Report, b: Report, one_model: bool) -> tuple[MetricRow, ...]:
    rows = []
    for metric in METRICS:
        before, after = value_of(a, metric), value_of(b, metric)
        if (before is None and after is None) or (before == after and not metric.headline):
            continue
        reason = reason_not_comparable(a, b, metric, one_model=one_model)
        rows.append(
            MetricRow(
                metric=metric.key,
                title=metric.title,
                unit=metric.unit,
                config=None,
                a=before,
                b=after,
                ratio=after / before if before and after is not None else None,
                verdict="not_comparable" if reason else _exact_verdict(before, after),
                reason=reason,
            )
        )
    return tuple(rows)


def _exact_verdict(before: int | None, after: int | None) -> Verdict:
    if before is None or after is None or before == after:
        return "same"
    return "better" if after < before else "worse"


def _sides(a: Report, b: Report, labels: tuple[str, str] | None) -> tuple[Side, Side]:
    names = labels or (a.target.name, b.target.name)
    if names[0] == names[1]:
        suffixes = _distinct_suffixes(a.target.spec, b.target.spec)
        names = (f"{names[0]} ({suffixes[0]})", f"{names[1]} ({suffixes[1]})")
    return _side(a, names[0]), _side(b, names[1])


def _distinct_suffixes(a_spec: str, b_spec: str) -> tuple[str, str]:
    """The shortest path suffixes that distinguish two TARGET texts: file names, then parent folders; else A and B."""
    paths = [spec.replace("\\", "/").split("/") for spec in (a_spec, b_spec)]
    for count in range(1, max(map(len, paths)) + 1):
        suffixes = ["/".join(parts[-count:]) for parts in paths]
        if suffixes[0] != suffixes[1]:
            return suffixes[0], suffixes[1]
    return "A", "B"


def _side(report: Report, label: str) -> Side:
    target, run = report.target, baseline_of(report.runs)
    environment = run.environment if run is not None else None
    return Side(
        label=label,
        name=target.name,
        spec=target.spec,
        mode=target.mode,
        inputs=target.inputs,
        samples=next((tensor.shape[0] for tensor in target.inputs if tensor.shape), None),
        device=(environment.device_name or environment.device) if environment is not None else "",
        created=report.created[:10],
        tool=f"{report.tool.name} {report.tool.version}",
    )

"""The result of a comparison in sentences, and the notes that limit it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from profiler_kit.comparison.measured_metrics import failure_reason, run_reason
from profiler_kit.comparison.ratios import example_count
from profiler_kit.records.comparison import Comparison, Explanation, LayerChange, MetricRow, Side, TimeRatio
from profiler_kit.records.counts import DEFAULT_CONVENTION, StaticCount
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.uncounted import BOUNDS, bound_text
from profiler_kit.statistics.report_noise import noise_between
from profiler_kit.units import percent, plural, text

MAX_NAMED_LAYERS: Final = 4  # layers or ops named in a sentence; the tables list all
MIN_TIME_RATIO_CHANGE: Final = 1.1  # a configuration that changes the time ratio by less adds no information
WITHIN_NOISE: Final = "The difference is within noise."
MAX_SHARED_WORK_SHARE: Final = (
    0.5  # of a side's work, in layers on both sides: above it, the sides are versions of one model
)
DOMINANT_WORK_SHARE: Final = 0.5  # of a side's work: a layer with this share dominates the side
MAX_NAMED_EDITS: Final = 4
# The metrics whose reasons are sentences of the result, in this order; the others are in the table of metrics.
EXPLAINED_METRICS: Final = ("flops", "saved", "params", "trainable_params", "peak", "uncounted")


def sentences(
    compared: Comparison, a: StaticCount | None, b: StaticCount | None, noisy_configs: Collection[str]
) -> tuple[str, ...]:
    """State the result: time as work and efficiency, the location of the work, and the wrong explanations.

    Only representative configurations get sentences. `a`, `b`: the static counts. `noisy_configs`: the configurations whose
    two step times differ by no more than noise.
    """
    sides = (compared.a, compared.b)
    details = {split.config: split.sentence for split in compared.efficiencies if split.config not in noisy_configs}
    lines = []
    for ratio in (ratio for ratio in compared.times if ratio.config in compared.telling):
        prefix = f"Under {ratio.config}: " if len(compared.times) > 1 else ""
        noise = f" {WITHIN_NOISE}" if ratio.config in noisy_configs else ""
        lines += [f"{prefix}{ratio.sentence}{noise}", details.get(ratio.config, "")]
    if not compared.times and a is not None and b is not None and not compared.refusal("flops"):
        lines.append(_work_sentence(a, b, sides, is_exact=compared.exact))
    dominant_layers = _dominant_layers_sentence(sides, compared.layers) if compared.times else ""
    lines += [dominant_layers] if dominant_layers else edit_sentences(compared)
    lines += _wrong_explanations(compared.explanations)
    return tuple(_capitalize(line) for line in lines if line)


def _wrong_explanations(explanations: Sequence[Explanation]) -> list[str]:
    """One sentence per wrong explanation. Memory comes from the configuration with the largest ratio of peaks.

    FLOPs are left out: the sentence about the time has them.
    """
    lines = []
    for key in ("activations", "loss", "parameters"):
        wrong = [
            explanation for explanation in explanations if explanation.key == key and explanation.verdict == "wrong"
        ]
        if not wrong:
            continue
        explanation = max(wrong, key=_peak_ratio) if key == "activations" else wrong[0]
        has_several_configs = len({each.config for each in explanations}) > 1
        prefix = f"Under {explanation.config}: " if has_several_configs and key == "activations" else ""
        lines.append(f"{'Predicted: ' if explanation.config is None else prefix}{explanation.sentence}")
    return lines


def _peak_ratio(explanation: Explanation) -> float:
    """The larger of the two peaks over the smaller one; the peaks are the explanation's first numbers."""
    peaks = [float(number.value) for number in explanation.numbers[:2]]
    return max(peaks) / max(min(peaks), 1.0)


def _dominant_layers_sentence(sides: tuple[Side, Side], layers: Sequence[LayerChange]) -> str:
    """Name the dominant layer of each side if the two models share little work; else empty."""
    totals = [sum(layer.a.flops for layer in layers), sum(layer.b.flops for layer in layers)]
    if min(totals, default=0) <= 0:
        return ""
    shared = [layer for layer in layers if layer.a_path is not None and layer.b_path is not None]
    shared_flops = (sum(layer.a.flops for layer in shared), sum(layer.b.flops for layer in shared))
    if any(flops > MAX_SHARED_WORK_SHARE * total for flops, total in zip(shared_flops, totals, strict=True)):
        return ""
    largest = (max(layers, key=lambda layer: layer.a.flops), max(layers, key=lambda layer: layer.b.flops))
    shares = (largest[0].a.flops / totals[0], largest[1].b.flops / totals[1])
    if min(shares) < DOMINANT_WORK_SHARE:
        return ""
    names = [
        f"{shown_path(path or '')} ({percent(share, 3)} of {side.label}'s)"
        for path, share, side in zip((largest[0].a_path, largest[1].b_path), shares, sides, strict=True)
    ]
    return f"Most work is in {names[0]} and {names[1]}."


def representative_configs(a: Report, times: Sequence[TimeRatio]) -> tuple[str, ...]:
    """The baseline, and the configuration one flag away from it with the most different time ratio, if it differs enough.

    Sentences about all configurations would repeat each other. These two show the result and how a flag changes it.
    """
    if not times:
        return tuple(run.config.name for run in a.runs[:1])
    baseline = times[0]
    flags = {
        run.config.name: run.config.flags for run in a.runs if run.config.repeat_of is None and run.config.is_plain
    }
    baseline_flags = flags.get(baseline.config)
    if baseline_flags is None:
        return (baseline.config,)

    def distance(ratio: TimeRatio) -> float:
        return abs(math.log(ratio.time_ratio / baseline.time_ratio))

    neighbors = [
        ratio
        for ratio in times[1:]
        if ratio.config in flags and sum(x != y for x, y in zip(flags[ratio.config], baseline_flags, strict=True)) == 1
    ]
    farthest = max(neighbors, key=distance, default=None)
    if farthest is None or distance(farthest) < math.log(MIN_TIME_RATIO_CHANGE):
        return (baseline.config,)
    return (baseline.config, farthest.config)


def _capitalize(sentence: str) -> str:
    """`sentence` with a capital letter, unless it starts with a model's name."""
    return sentence[0].upper() + sentence[1:] if sentence.startswith(("the ", "this ")) else sentence


def _work_sentence(a: StaticCount, b: StaticCount, sides: tuple[Side, Side], *, is_exact: bool) -> str:
    flops = (a.step.flops, b.step.flops)
    if min(flops) <= 0:
        return ""
    work = "work" if is_exact else "counted work"
    if flops[0] == flops[1]:
        return f"{sides[0].label} and {sides[1].label} do the same {work}: {text(flops[0], 'flops')} FLOPs per step."
    more, less = (0, 1) if flops[0] > flops[1] else (1, 0)
    if text(flops[more] / flops[less], "ratio") == "1x":
        return ""  # the reason of the metric has the exact difference
    return (
        f"{sides[more].label} does {text(flops[more] / flops[less], 'ratio')} the {work} of {sides[less].label}: "
        f"{text(flops[more], 'flops')} and {text(flops[less], 'flops')} FLOPs per step."
    )


def edit_sentences(compared: Comparison) -> list[str]:
    """What was edited, and why each main metric differs; then whether checkpoints load. Empty without a difference."""
    titles = [edit.title for edit in compared.edits[:MAX_NAMED_EDITS]]
    others = len(compared.edits) - len(titles)
    lines = []
    if titles:
        more = f", and {plural(others, 'other edit')}" if others else ""
        lines.append(f"Edited: {'; '.join(titles)}{more}.")
    reasons = {reason.metric: reason for reason in compared.reasons if reason.config is None}
    if {"params", "trainable_params"} <= set(reasons) and reasons["params"].parts == reasons["trainable_params"].parts:
        del reasons["trainable_params"]
    lines += [reasons[key].sentence for key in EXPLAINED_METRICS if key in reasons]
    if compared.checkpoint is not None and not compared.checkpoint.is_compatible:
        lines.append(compared.checkpoint.sentence)
    return lines


def notes(
    a: Report,
    b: Report,
    sides: tuple[Side, Side],
    rows: Sequence[MetricRow],
    shared_runs: Sequence[tuple[ConfigRun, ConfigRun]],
) -> tuple[str, ...]:
    """The limits of the comparison: metrics and runs that are not comparable or failed, uncounted ops, noise."""
    lines = []
    if a.static is not None and a.static.convention_name != DEFAULT_CONVENTION:
        lines.append(f"Work is counted by the convention {a.static.convention_name}. {a.static.convention}")
    titles_by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row.config is None and row.verdict == "not_comparable":
            titles_by_reason.setdefault(row.reason, []).append(row.title)
    lines += [f"Not comparable: {'; '.join(titles)}: {reason}." for reason, titles in titles_by_reason.items()]
    if a.target.channels_last != b.target.channels_last:
        lines.append(f"Only {sides[0 if a.target.channels_last else 1].label} is in channels_last layout.")
    for side, report in zip(sides, (a, b), strict=True):
        if report.target.inputs_are_guessed:
            lines.append(f"The input shape of {side.label} was guessed.")
        if report.static is not None and report.static.uncounted:
            ops = ", ".join(op.op for op in report.static.uncounted[:MAX_NAMED_LAYERS])
            lines.append(f"{side.label} has uncounted ops ({ops}): its FLOPs are a lower bound.")
        bounds = report.static.bounds if report.static is not None else ()
        lines += [f"The work of {side.label} is {BOUNDS[bound.kind]}: {bound_text(bound)}." for bound in bounds]
    lines += _run_notes(a, b, sides, shared_runs)
    if (a.runs or b.runs) and not shared_runs:
        lines.append("The reports have no configuration in common, so no times are compared.")
    if any(a_run.step_ns and b_run.step_ns for a_run, b_run in shared_runs):
        lines.append(noise_between(a.runs, b.runs).sentence(significant=2))
    return tuple(lines)


def _run_notes(
    a: Report, b: Report, sides: tuple[Side, Side], shared_runs: Sequence[tuple[ConfigRun, ConfigRun]]
) -> list[str]:
    """Why configurations are not compared, and which of them have different batch sizes."""
    configs_by_reason: dict[str, list[str]] = {}
    configs_by_batches: dict[tuple[int, int], list[str]] = {}
    for a_run, b_run in shared_runs:
        reason = failure_reason(a_run, b_run, sides) or run_reason(a, b, a_run, b_run, sides)
        if reason:
            configs_by_reason.setdefault(reason, []).append(a_run.config.name)
        a_examples, b_examples = example_count(a_run, sides[0]), example_count(b_run, sides[1])
        if a_run.samples and b_run.samples and a_examples and b_examples and a_examples != b_examples:
            configs_by_batches.setdefault((a_examples, b_examples), []).append(a_run.config.name)
    lines = [f"Not compared under {', '.join(names)}: {reason}." for reason, names in configs_by_reason.items()]
    lines += [
        f"Under {', '.join(names)}, a step holds {a_examples} examples of {sides[0].label} and {b_examples} of "
        f"{sides[1].label}: compare the times per example."
        for (a_examples, b_examples), names in configs_by_batches.items()
    ]
    return lines

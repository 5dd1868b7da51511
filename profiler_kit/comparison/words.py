"""What differs, in sentences."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from profiler_kit.comparison.ratios import examples
from profiler_kit.comparison.timed import environment_reason, failure_reason
from profiler_kit.records.comparison import Comparison, Explanation, LayerChange, Side, TimeRatio
from profiler_kit.records.counts import DEFAULT_CONVENTION, StaticCount
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import inputs_text
from profiler_kit.statistics.report_noise import noise_between
from profiler_kit.units import Unit, percent, plural, signed, text

WHY_LAYERS: Final = 4  # named in the sentence; the table has all
TELLING_RATIO: Final = 1.1  # a time ratio that a flag moves by less tells the same story
WITHIN_NOISE: Final = "Runs differ by as much anyway."
OWN_SHARE: Final = 0.5  # of a side's work in layers that both have: with more they are versions of one net
DOMINANT_SHARE: Final = 0.5  # of a side's work: a layer with as much is where the work is
WORTH_SHARE: Final = 0.001  # of a total: a smaller change of it explains nothing


def sentences(
    compared: Comparison, a: StaticCount | None, b: StaticCount | None, noisy: Collection[str]
) -> tuple[str, ...]:
    """The result in sentences: time as work and efficiency, where the work is, memory that misleads, what it is not.

    Of several configurations only the telling ones get sentences, and each wrong explanation gets one. `a`, `b`: what was
    counted. `noisy` are the configurations whose two steps differ by no more than runs differ anyway.
    """
    sides = (compared.a, compared.b)
    after = {one.config: one.sentence for one in compared.efficiencies} | dict.fromkeys(noisy, WITHIN_NOISE)
    told = [
        (f"Under {one.config}: " if len(compared.times) > 1 else "")
        + f"{one.sentence} {after.get(one.config, '')}".rstrip()
        for one in compared.times
        if one.config in compared.telling
    ]
    if not compared.times and a is not None and b is not None:
        told.append(_work(a, b, sides))
    dominants = _dominants(sides, compared.layers) if compared.times else ""
    told.append(dominants or why(compared.layers))
    told += _wrong(compared.explanations)
    return tuple(_begun(sentence) for sentence in told if sentence)


def _wrong(explanations: Sequence[Explanation]) -> list[str]:
    """A sentence for each explanation that is wrong, from where it is most so; FLOPs are told with the times."""
    told = []
    for key in ("activations", "loss", "parameters"):
        wrong = [one for one in explanations if one.key == key and one.verdict == "wrong"]
        if not wrong:
            continue
        most = max(wrong, key=_larger_over_smaller) if key == "activations" else wrong[0]
        under = (
            f"Under {most.config}: " if len({one.config for one in explanations}) > 1 and key == "activations" else ""
        )
        predicted = "Predicted: " if most.config is None else under
        told.append(f"{predicted}{most.sentence}")
    return told


def _larger_over_smaller(one: Explanation) -> float:
    """How far the two sides' first number, the peaks, are apart."""
    values = [float(number.value) for number in one.numbers[:2]]
    return max(values) / max(min(values), 1.0)


def _dominants(sides: tuple[Side, Side], layers: Sequence[LayerChange]) -> str:
    """The one layer on each side that does most of its work, for two nets that share next to none of it; else empty."""
    totals = [sum(one.a.flops for one in layers), sum(one.b.flops for one in layers)]
    if min(totals, default=0) <= 0:
        return ""
    shared = [one for one in layers if one.a_path is not None and one.b_path is not None]
    in_both = (sum(one.a.flops for one in shared), sum(one.b.flops for one in shared))
    if any(flops > OWN_SHARE * total for flops, total in zip(in_both, totals, strict=True)):
        return ""
    largest = (max(layers, key=lambda one: one.a.flops), max(layers, key=lambda one: one.b.flops))
    shares = (largest[0].a.flops / totals[0], largest[1].b.flops / totals[1])
    if min(shares) < DOMINANT_SHARE:
        return ""
    words = [
        f"{shown_path(path or '')} ({percent(share, 3)} of {side.label}'s)"
        for path, share, side in zip((largest[0].a_path, largest[1].b_path), shares, sides, strict=True)
    ]
    return f"The work is in {words[0]} and {words[1]}."


def telling(a: Report, times: Sequence[TimeRatio]) -> tuple[str, ...]:
    """The baseline, and of the configurations that differ from it by one flag the one with the most different time ratio.

    Nine configurations make nine sentences that say the same; these two say it, and what the picture depends on.
    """
    if not times:
        return tuple(run.config.name for run in a.runs[:1])
    first = times[0]
    flags = {
        run.config.name: run.config.flags for run in a.runs if run.config.repeat_of is None and run.config.is_plain
    }
    here = flags.get(first.config)
    if here is None:
        return (first.config,)

    def differs(one: TimeRatio) -> float:
        return abs(math.log(one.time_ratio / first.time_ratio))

    neighbours = [
        one
        for one in times[1:]
        if one.config in flags and sum(x != y for x, y in zip(flags[one.config], here, strict=True)) == 1
    ]
    other = max(neighbours, key=differs, default=None)
    if other is None or differs(other) < math.log(TELLING_RATIO):
        return (first.config,)
    return (first.config, other.config)


def _begun(sentence: str) -> str:
    """`sentence` with a capital, unless it begins with a model's name."""
    return sentence[0].upper() + sentence[1:] if sentence.startswith(("the ", "this ")) else sentence


def _work(a: StaticCount, b: StaticCount, sides: tuple[Side, Side]) -> str:
    flops = (a.step.flops, b.step.flops)
    if min(flops) <= 0:
        return ""
    if flops[0] == flops[1]:
        return f"{sides[0].label} and {sides[1].label} do the same work: {text(flops[0], 'flops')} FLOPs a step."
    more, less = (0, 1) if flops[0] > flops[1] else (1, 0)
    return (
        f"{sides[more].label} does {text(flops[more] / flops[less], 'ratio')} the work of {sides[less].label}: "
        f"{text(flops[more], 'flops')} and {text(flops[less], 'flops')} FLOPs a step."
    )


def why(layers: Sequence[LayerChange]) -> str:
    """The layers that make the difference, a sentence for each metric that moved; empty where none did."""
    told = [
        _moved("FLOPs", "flops", [(one.a.flops, one.b.flops, one) for one in layers]),
        _moved("Saved for backward", "bytes", [(one.a.saved_bytes, one.b.saved_bytes, one) for one in layers]),
        _moved("Parameters", "count", [(one.a.params, one.b.params, one) for one in layers]),
    ]
    return " ".join(sentence for sentence in told if sentence)


def _moved(title: str, unit: Unit, figures: list[tuple[int, int, LayerChange]]) -> str:
    larger = max(sum(before for before, _, _ in figures), sum(after for _, after, _ in figures), 1)
    moved = [(after - before, one) for before, after, one in figures if after != before]
    moved.sort(key=lambda pair: -abs(pair[0]))
    named = [pair for pair in moved[:WHY_LAYERS] if abs(pair[0]) >= WORTH_SHARE * larger]
    if not named:
        return ""
    words = [f"{layer_name(one)} {signed(change, unit)}" for change, one in named]
    if len(moved) > len(named):
        others = len(moved) - len(named)
        rest = sum(change for change, _ in moved[len(named) :])
        words.append(f"{plural(others, 'other layer')} {signed(rest, unit)}")
    return f"{title} {signed(sum(change for change, _ in moved), unit)}: {', '.join(words)}."


def layer_name(one: LayerChange) -> str:
    """The layer as sentences call it: ``new block``, ``dropped fc1``, ``conv2``."""
    name = shown_path(one.path)
    return {"added": f"new {name}", "removed": f"dropped {name}"}.get(one.kind, name)


def notes(
    a: Report, b: Report, sides: tuple[Side, Side], shared: Sequence[tuple[ConfigRun, ConfigRun]]
) -> tuple[str, ...]:
    """What limits the comparison: other inputs, other batch, uncounted ops, noise, runs that failed or don't compare."""
    told = []
    if a.static is not None and a.static.convention_name != DEFAULT_CONVENTION:
        told.append(f"Work is counted by the convention {a.static.convention_name}. {a.static.convention}")
    a_inputs, b_inputs = inputs_text(a.target.inputs), inputs_text(b.target.inputs)
    if a_inputs != b_inputs:
        told.append(f"The inputs differ: {sides[0].label} {a_inputs}; {sides[1].label} {b_inputs}.")
    if a.target.mode != b.target.mode or a.target.arithmetic != b.target.arithmetic:
        told.append(
            f"{sides[0].label}: {a.target.mode}, {a.target.arithmetic}; {sides[1].label}: {b.target.mode}, {b.target.arithmetic}."
        )
    if a.target.channels_last != b.target.channels_last:
        told.append(f"Only {sides[0 if a.target.channels_last else 1].label} is in channels_last layout.")
    for side, report in zip(sides, (a, b), strict=True):
        if report.target.inputs_from == "guess":
            told.append(f"The input shape of {side.label} was guessed.")
        if report.static is not None and report.static.uncounted:
            ops = ", ".join(op.op for op in report.static.uncounted[:WHY_LAYERS])
            told.append(f"{side.label} has uncounted ops ({ops}): its FLOPs are a lower bound.")
    refused: dict[str, list[str]] = {}
    for one, other in shared:
        reason = failure_reason(one, other, sides) or environment_reason(a, b, one, other)
        if reason:
            refused.setdefault(reason, []).append(one.config.name)
    told += [f"Not compared under {', '.join(names)}: {reason}." for reason, names in refused.items()]
    batches: dict[tuple[int, int], list[str]] = {}
    for one, other in shared:
        both = examples(one, sides[0]), examples(other, sides[1])
        if one.samples and other.samples and both[0] and both[1] and both[0] != both[1]:
            batches.setdefault((both[0], both[1]), []).append(one.config.name)
    told += [
        f"Under {', '.join(names)} a step holds {ours} examples of {sides[0].label} and {theirs} of {sides[1].label}: "
        "compare the times per example."
        for (ours, theirs), names in batches.items()
    ]
    if (a.runs or b.runs) and not shared:
        told.append("The reports have no configuration in common, so no times are compared.")
    if any(one.step_ns and other.step_ns for one, other in shared):
        told.append(noise_between(a, b).sentence(significant=2))
    return tuple(told)

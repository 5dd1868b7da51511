"""The time between two steps as work and, layer by layer, efficiency: parts that sum to the whole, to the ns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from profiler_kit.comparison.layer_algorithms import RAN_IN, algorithm_uses, by_words, rate_words
from profiler_kit.comparison.ratios import work_scale
from profiler_kit.records.comparison import EfficiencySplit, LayerChange, LayerEfficiency, Side, SideEfficiency
from profiler_kit.records.counts import Phase, StaticCount
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import text

WORTH_SHARE: Final = 0.05  # of the slower step: less that efficiency makes of it is not worth a sentence
DOMINANT: Final = 0.5  # of its phase's time: a layer that stands for its side where it has no counterpart by name

SPREAD_SHARE: Final = 0.2  # of what efficiency makes: with less no layer is the one that makes the difference

Owner = tuple[str, Phase]


def efficiency_split(
    a: Report,
    b: Report,
    runs: tuple[ConfigRun, ConfigRun],
    sides: tuple[Side, Side],
    layers: Sequence[LayerChange] = (),
) -> EfficiencySplit | None:
    """The two steps' difference by layer; None without step times, counted work, or times by layer on one clock.

    The faster side's rate over its whole step is the measure for both: what the slower one would take at it is work, what
    it takes beyond that is efficiency, and each layer has its own part of that. `layers` say which layers are partners.
    """
    one, other = runs
    if one.step_ns is None or other.step_ns is None or a.static is None or b.static is None:
        return None
    if not (one.modules and other.modules) or one.clock != other.clock:
        return None
    statics = (a.static, b.static)
    steps = (one.step_ns.median, other.step_ns.median)
    work = [_work(static, work_scale(run, side)) for static, run, side in zip(statics, runs, sides, strict=True)]
    flops = [sum(each.values()) for each in work]
    if min(*flops, *steps) <= 0:
        return None
    slow, fast = (1, 0) if steps[1] >= steps[0] else (0, 1)
    reference_ns = [round(flops[side] * Fraction(steps[fast]) / flops[fast]) for side in (0, 1)]
    both = [_side(runs[side], steps[side], work[side], reference_ns[side]) for side in (0, 1)]
    split = EfficiencySplit(
        config=one.config.name,
        slower="b" if slow == 1 else "a",
        clock=one.clock,
        reference_flops_per_s=float(flops[fast] / steps[fast] * 1_000_000_000),
        work_ns=reference_ns[slow] - steps[fast],
        a=both[0],
        b=both[1],
    )
    return replace(split, sentence=_sentence(split, sides, layers))


def _work(static: StaticCount, scale: Fraction) -> dict[Owner, Fraction]:
    """Counted FLOPs by module and phase, what is recomputed as part of backward."""
    found: Counter[Owner] = Counter()
    for node in static.modules:
        found[node.path, "forward"] += node.forward.flops
        found[node.path, "loss"] += node.loss.flops
        found[node.path, "backward"] += node.backward.flops + node.recompute.flops
    return {owner: flops * scale for owner, flops in found.items() if flops}


def _side(run: ConfigRun, step_ns: int, work: Mapping[Owner, Fraction], reference_ns: int) -> SideEfficiency:
    times: Counter[Owner] = Counter()
    for layer in run.modules:
        times[layer.path, RAN_IN.get(layer.phase, layer.phase)] += layer.kernel_ns
    at_reference = apportioned(reference_ns, work)
    owners = [*times, *(owner for owner in work if owner not in times)]
    layers = []
    for path, phase in owners:
        device_ns, flops = times[path, phase], work.get((path, phase), Fraction(0))
        expected = at_reference.get((path, phase), 0)
        layers.append(
            LayerEfficiency(
                path=path,
                phase=phase,
                device_ns=device_ns,
                flops=round(flops),
                flops_per_s=float(flops / device_ns * 1_000_000_000) if flops and device_ns > 0 else None,
                at_reference_ns=expected,
                beyond_ns=device_ns - expected,
                algorithms=algorithm_uses(run, path, phase),
            )
        )
    return SideEfficiency(
        step_ns=step_ns,
        flops=round(sum(work.values())),
        layers=tuple(sorted(layers, key=lambda layer: -layer.device_ns)),
        rest_ns=step_ns - sum(layer.device_ns for layer in layers),
        beyond_ns=step_ns - reference_ns,
    )


def apportioned(whole: int, weights: Mapping[Owner, Fraction]) -> dict[Owner, int]:
    """`whole` shared out by `weights` in whole numbers that sum to it: rounded down, what is left to the largest remainders."""
    total = sum(weights.values())
    exact = {owner: whole * weight / total for owner, weight in weights.items()}
    shares = {owner: int(share) for owner, share in exact.items()}
    left = whole - sum(shares.values())
    for owner in sorted(exact, key=lambda owner: shares[owner] - exact[owner])[:left]:
        shares[owner] += 1
    return shares


@dataclass(frozen=True, slots=True)
class _Part:
    """One layer's phase on the slower side, its partner on the other, and what it adds to the time between the steps.

    With a partner by name that is how much more than the partner it loses, so that what both lose alike is no reason.
    """

    layer: LayerEfficiency
    partner: LayerEfficiency | None
    adds_ns: int


def _sentence(split: EfficiencySplit, sides: tuple[Side, Side], layers: Sequence[LayerChange]) -> str:
    """What of the difference is work, and which layer makes most of the rest; empty where the rest is next to nothing."""
    slow, fast = split.slower_first
    slower, faster = (sides[1], sides[0]) if split.slower == "b" else (sides[0], sides[1])
    parts = _parts(split, layers)
    if abs(slow.beyond_ns) < WORTH_SHARE * slow.step_ns or not parts:
        return ""
    lost = slow.beyond_ns > 0
    top = max(parts, key=lambda part: part.adds_ns if lost else -part.adds_ns)
    lead = _lead(split, slow, fast)
    if lost and slow.rest_ns - fast.rest_ns > top.adds_ns:
        clock = "operators" if split.clock == "operator" else "kernels"
        return (
            f"{lead} {text(slow.rest_ns, 'ns')} of {slower.label}'s step pass outside of the layers' {clock} "
            f"({faster.label}: {text(fast.rest_ns, 'ns')})."
        )
    name = f"{slower.label}'s {shown_path(top.layer.path)}"
    passed = {"forward": "forward pass", "backward": "backward pass"}.get(top.layer.phase, top.layer.phase)
    amount = text(abs(top.adds_ns), "ns")
    told = f"{amount} the {passed} of {name}" if lost else f"{name} saves {amount} in its {passed}"
    if abs(top.adds_ns) < SPREAD_SHARE * abs(slow.beyond_ns):
        whole = f"{text(abs(slow.beyond_ns), 'ns')} {'less' if lost else 'more'} efficiency"
        spread = len({part.layer.path for part in parts if part.adds_ns * top.adds_ns > 0})
        return f"{lead} {whole}, spread over {spread} layers: {told} at most."
    partner = top.partner or _rival(top.layer, slow, fast)
    beside = ""
    if partner is not None and partner.algorithms:
        beside = f" ({faster.label}'s {shown_path(partner.path)}: {rate_words(partner)})"
    return f"{lead} {told}, {by_words(top.layer)}{beside}."


def _lead(split: EfficiencySplit, slow: SideEfficiency, fast: SideEfficiency) -> str:
    between, work = text(slow.step_ns - fast.step_ns, "ns"), text(split.work_ns, "ns")
    if slow.beyond_ns <= 0:
        return f"Work alone would put {work} between them, not {between};"
    if split.work_ns > 0:
        return f"Of the {between} between them {work} is work, and"
    return f"None of the {between} between them is work:"


def _parts(split: EfficiencySplit, layers: Sequence[LayerChange]) -> list[_Part]:
    slow, fast = split.slower_first
    pairs = [(one.b_path, one.a_path) if split.slower == "b" else (one.a_path, one.b_path) for one in layers]
    there = {here: path for here, path in pairs if here is not None and path is not None}
    known = {(one.path, one.phase): one for one in fast.layers}
    parts = []
    for layer in slow.layers:
        path = there.get(layer.path)
        partner = known.get((path, layer.phase)) if path is not None else None
        parts.append(_Part(layer, partner, layer.beyond_ns - (partner.beyond_ns if partner is not None else 0)))
    return parts


def _rival(top: LayerEfficiency, slow: SideEfficiency, fast: SideEfficiency) -> LayerEfficiency | None:
    """What stands beside a layer without a partner: the other side's largest in its phase, where both dominate theirs."""
    largest = max((one for one in fast.layers if one.phase == top.phase), key=lambda one: one.device_ns, default=None)
    return largest if largest is not None and _dominates(top, slow) and _dominates(largest, fast) else None


def _dominates(one: LayerEfficiency, side: SideEfficiency) -> bool:
    whole = sum(layer.device_ns for layer in side.layers if layer.phase == one.phase)
    return one.device_ns >= DOMINANT * whole > 0

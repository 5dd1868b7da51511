"""A convolution that executes far more or far fewer operations than are counted, by hardware counters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.convolution import Convolution, convolution_of
from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    factor_text,
    join_list,
    join_sentences,
    layer_name,
    layer_name_capitalized,
    limit_percent,
    quoted_name,
    work_text,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import busy_share, module_node, ratio
from profiler_kit.records.claims import module_claims
from profiler_kit.records.experiments import ConvolutionPart, ConvolutionTiming, KernelCounters
from profiler_kit.records.families import FFT, REDUCED_OPERATION_FAMILIES, family_name
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# A third of the work is padding. Tiles at an image's border and a bias may explain less than that.
MIN_PADDED_FACTOR: Final = 1.5
# Winograd for 3x3 kernels executes 0.44 (2x2 tiles) to 0.7 of the counted work, its transforms included; FFT far less.
MAX_FEWER_FACTOR: Final = 0.7
# A part below this share of the device time cannot change the step noticeably.
MIN_DEVICE_SHARE: Final = 0.05
# A tenth of the device time spent on padding is more than a change of configuration often saves.
MEDIUM_PADDING_SHARE: Final = 0.10
# Tile widths of libraries, in channels.
MULTIPLES: Final = (8, 16, 32, 64, 128)
# Tiles explain the measured factor if theirs is this close. A bias and borders add a little to it.
MAX_EXPLAINED_ERROR: Final = 0.05
# Up to this many input channels are usually given by the data, such as the three of an image, and cannot be changed.
MAX_DATA_CHANNELS: Final = 4

PART_WORDS: Final[dict[ConvolutionPart, str]] = {
    "fprop": "in the forward pass",
    "dgrad": "for the input gradient",
    "wgrad": "for the weight gradient",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedPart:
    """One part of a convolution in one run: counted FLOPs, executed FLOPs, and its share of the device time."""

    run: ConfigRun
    timing: ConvolutionTiming
    counters: KernelCounters
    counted_flops: int
    share: float

    @property
    def factor(self) -> float:
        """Executed over counted FLOPs."""
        return self.counters.flops / self.counted_flops

    @property
    def padding_share(self) -> float:
        """The share of the device time spent on padding, if time is proportional to operations."""
        return self.share * (1.0 - 1.0 / self.factor)


def _executed_work(report: Report) -> Iterator[Finding]:
    """Yield at most two findings for each layer: one about padding, one about fewer operations."""
    padded: dict[str, list[_CountedPart]] = {}
    fewer: dict[str, list[_CountedPart]] = {}
    for run in measured_runs(report):
        for part in _counted_parts(report, run):
            if part.factor >= MIN_PADDED_FACTOR:
                padded.setdefault(part.timing.path, []).append(part)
            elif part.factor < MAX_FEWER_FACTOR and part.counters.complete:
                fewer.setdefault(part.timing.path, []).append(part)
    for parts in padded.values():
        yield _padding_finding(report, parts)
    for parts in fewer.values():
        yield _fewer_operations_finding(parts)


def _counted_parts(report: Report, run: ConfigRun) -> Iterator[_CountedPart]:
    for timing in run.convolutions:
        share = ratio(timing.kernel_ns, run.device_ns)
        macs, node = timing.macs, module_node(report.static, timing.path)
        if macs is None and node is not None and convolution_of(node) is not None:
            macs = node.forward.macs  # each of the two gradients needs as many MACs as the forward pass
        if timing.counters is None or not macs or share is None or share < MIN_DEVICE_SHARE:
            continue
        yield _CountedPart(
            run=run, timing=timing, counters=timing.counters, counted_flops=2 * macs, share=min(share, 1.0)
        )


def _padding_finding(report: Report, parts: list[_CountedPart]) -> Finding:
    """The finding about the padded `parts` of one layer, in the first run that has any."""
    run = parts[0].run
    run_parts = sorted((part for part in parts if part.run is run), key=lambda part: -part.padding_share)
    worst = run_parts[0]
    padding_share = min(1.0, math.fsum(part.padding_share for part in run_parts))
    node = module_node(report.static, worst.timing.path)
    conv = convolution_of(node) if node is not None else None
    tiles = _explaining_tiles(conv, worst.factor)
    return new_finding(
        severity="medium" if padding_share >= MEDIUM_PADDING_SHARE else "low",
        title=f"Padding in {layer_name(worst.timing.path)}: it executes {factor_text(worst.factor)} its counted FLOPs "
        f"in {quoted_name(run)}",
        explanation=join_sentences(
            _amounts(worst),
            _other_parts(run_parts[1:]),
            f"If time is proportional to operations, padding takes {percent(padding_share)} of the device time.",
            _tile_explanation(conv, tiles),
            _other_runs(report, worst),
        ),
        advice=_channel_advice(tiles),
        evidence=(*_evidence(run_parts), *_tile_evidence(conv, worst.timing.path)),
        paths=(worst.timing.path,),
        weight=padding_share * busy_share(report),
        computed=True,
        claims=module_claims((worst.timing.path,) if run is report.baseline() else ()),
    )


def _fewer_operations_finding(parts: list[_CountedPart]) -> Finding:
    """The finding about `parts` of one layer that execute fewer operations, in the first run that has any."""
    run = parts[0].run
    run_parts = sorted((part for part in parts if part.run is run), key=lambda part: -part.share)
    largest = run_parts[0]
    other_runs = list(dict.fromkeys(quoted_name(part.run) for part in parts if part.run is not run))
    workspace_bytes = largest.timing.workspace_bytes
    rate = largest.timing.flops_per_s
    # the complex product between FFT's transforms may take most of the time
    family = FFT if largest.timing.family == "gemm:complex" else largest.timing.family
    return new_finding(
        severity="info",
        title=f"{layer_name_capitalized(largest.timing.path)} executes only {factor_text(largest.factor)} its counted FLOPs "
        f"in {quoted_name(run)}: "
        f"{family_name(family)}",
        explanation=join_sentences(
            _amounts(largest),
            _other_parts(run_parts[1:]),
            f"{family_name(family)} does less arithmetic than a direct convolution and moves more bytes."
            if family in REDUCED_OPERATION_FAMILIES
            else "Its kernels skip work that is counted, for example on padded borders.",
            f"This part moves {text(largest.counters.dram_bytes, 'bytes')} to and from DRAM.",
            f"Its effective rate of {text(rate, 'flops/s')} comes from the count: do not compare it with the device's peak."
            if rate is not None
            else "",
            f"The same holds in {join_list(other_runs)}." if other_runs else "",
        ),
        advice="Judge this layer by its time. "
        + (
            f"Keep {text(workspace_bytes, 'bytes')} of memory free for its workspace; otherwise the library falls back to "
            "another algorithm."
            if workspace_bytes
            else "If its workspace does not fit into free memory, the library falls back to another algorithm."
        ),
        evidence=_evidence(run_parts),
        paths=(largest.timing.path,),
        weight=largest.share,
    )


def _amounts(part: _CountedPart) -> str:
    return (
        f"{layer_name_capitalized(part.timing.path)} needs {work_text(part.counted_flops, 'FLOP')} "
        f"{PART_WORDS[part.timing.part]} by count and "
        f"executes {work_text(part.counters.flops, 'FLOP')} by hardware counters."
    )


def _other_parts(parts: list[_CountedPart]) -> str:
    factors = [f"{factor_text(part.factor)} {PART_WORDS[part.timing.part]}" for part in parts]
    return f"It also executes {join_list(factors)}." if factors else ""


def _other_runs(report: Report, worst: _CountedPart) -> str:
    """The factors of the same part in the other runs with counters."""
    factors = [
        f"{factor_text(part.factor)} in {quoted_name(part.run)}"
        for run in measured_runs(report)
        if run is not worst.run
        for part in _counted_parts(report, run)
        if (part.timing.path, part.timing.part) == (worst.timing.path, worst.timing.part)
    ]
    return f"The same part executes {join_list(factors)}." if factors else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiles:
    """Tiles whose width in channels is a multiple of `multiple`, on one or both sides of the product of `conv`."""

    conv: Convolution
    multiple: int
    pads_in: bool = True
    pads_out: bool = True

    @property
    def group_channels(self) -> tuple[int, int]:
        """Input and output channels of one group: a tile never spans groups."""
        return self.conv.channels_in // self.conv.groups, self.conv.channels_out // self.conv.groups

    def round_up(self, cin: int, cout: int) -> tuple[int, int]:
        """The channels that the tiles compute for `cin` and `cout`."""
        step = self.multiple
        return (-(-cin // step) * step if self.pads_in else cin), (-(-cout // step) * step if self.pads_out else cout)

    def round_down(self, cin: int, cout: int) -> tuple[int, int]:
        """The largest channel counts up to `cin` and `cout` that fill whole tiles, and at least one tile."""
        step = self.multiple
        return (
            max(step, cin // step * step) if self.pads_in and cin > MAX_DATA_CHANNELS else cin,
            max(step, cout // step * step) if self.pads_out else cout,
        )

    @property
    def factor(self) -> float:
        """Executed over counted FLOPs, if only channels are padded."""
        return math.prod(self.round_up(*self.group_channels)) / math.prod(self.group_channels)


def _explaining_tiles(conv: Convolution | None, factor: float) -> _Tiles | None:
    """The tiles whose factor is closest to `factor`, the smaller of equal ones; None if none is close."""
    if conv is None:
        return None
    sides = ((True, True), (False, True), (True, False))
    candidates = [_Tiles(conv=conv, multiple=m, pads_in=i, pads_out=o) for m in MULTIPLES for i, o in sides]
    best = min(candidates, key=lambda tiles: abs(tiles.factor / factor - 1.0))
    return best if abs(best.factor / factor - 1.0) <= MAX_EXPLAINED_ERROR else None


def _tile_explanation(conv: Convolution | None, tiles: _Tiles | None) -> str:
    if conv is None:
        return ""
    if tiles is None:
        cin, cout = _Tiles(conv=conv, multiple=1).group_channels
        return f"Rounding up its {cin} input and {cout} output channels does not explain this factor."
    (cin, cout), (padded_in, padded_out) = tiles.group_channels, tiles.round_up(*tiles.group_channels)
    return (
        f"Tiles for multiples of {tiles.multiple} channels explain it: {cin} input and {cout} output channels, computed as "
        f"{padded_in} and {padded_out}, make {factor_text(tiles.factor)}."
    )


def _channel_advice(tiles: _Tiles | None) -> Advice:
    if tiles is None:
        return Advice("Try channels in multiples of 64, and channels_last. The library chooses the tiles.")
    cin, cout = tiles.group_channels
    executed, smaller = math.prod(tiles.round_up(cin, cout)), tiles.round_down(cin, cout)
    padded_in, padded_out = tiles.round_up(cin, cout)
    larger = (cin if cin <= MAX_DATA_CHANNELS else padded_in, padded_out)
    smaller_share = math.prod(tiles.round_up(*smaller)) / executed
    group = " in each group" if tiles.conv.groups > 1 else ""
    narrower = [
        candidate
        for multiple in MULTIPLES
        if multiple < tiles.multiple and (candidate := replace(tiles, multiple=multiple)).factor < MIN_PADDED_FACTOR
    ]
    search = "torch.backends.cudnn.benchmark = True"
    advice = join_sentences(
        f"Choose channels that fill the tiles{group}: {larger[0]} -> {larger[1]} would execute as many operations as {cin} -> "
        f"{cout} does now"
        + (f", {smaller[0]} -> {smaller[1]} {percent(smaller_share)} of them." if smaller_share < 1.0 else "."),
        f"A kernel with tiles for multiples of {narrower[-1].multiple} would execute {factor_text(narrower[-1].factor)}: try "
        f"{search}, which may select such a kernel."
        if narrower
        else "",
        "This is computed from the tiles, not measured: the library may choose other kernels for other channels.",
    )
    return Advice(advice, search if narrower else "")


def _evidence(parts: list[_CountedPart]) -> Iterator[Evidence]:
    for part in parts:
        yield from evidence_of(
            f"{part.timing.path}, {part.timing.part}, {part.run.config.name}",
            ("executed over counted", part.factor, "ratio"),
            ("executed FLOPs", part.counters.flops, "flops"),
            ("counted FLOPs", part.counted_flops, "flops"),
            ("DRAM bytes", part.counters.dram_bytes, "bytes"),
            ("share of device time", 100.0 * part.share, "percent"),
            ("kernel", part.timing.kernel, "text"),
        )


def _tile_evidence(conv: Convolution | None, path: str) -> Iterator[Evidence]:
    for multiple in MULTIPLES:
        if conv is not None:
            factor = _Tiles(conv=conv, multiple=multiple).factor
            yield from evidence_of(f"{path}, computed", (f"factor in tiles of {multiple} channels", factor, "ratio"))


EXECUTED_WORK = Rule(
    "executed_work",
    f"""
Fires when hardware counters (`--counters`) show that a part of a convolution executes at least {MIN_PADDED_FACTOR:g}x the
counted FLOPs, or less than {MAX_FEWER_FACTOR:g}x, and this part takes at least {limit_percent(MIN_DEVICE_SHARE)} of the device
time. The parts are the forward pass, the input gradient and the weight gradient. The count is two operations per
multiply-accumulate.

- `medium`: padding takes at least {limit_percent(MEDIUM_PADDING_SHARE)} of the device time, if time is proportional to
  operations.
- `low`: padding takes less.
- `info`: the part executes fewer operations than are counted.

**At least {MIN_PADDED_FACTOR:g}x: padding.** Kernels compute tiles of a fixed number of channels: a tile for 64 channels
computes 50 channels as 64. The rule rounds input channels, output channels or both up to multiples of
{", ".join(map(str, MULTIPLES))}. If one of these explains the measured factor within {limit_percent(MAX_EXPLAINED_ERROR)}, the
finding names it, and shows the work of other channel counts in the same tiles. That is **computed, not measured**: the
library may choose another kernel.

**Less than {MAX_FEWER_FACTOR:g}x: fewer operations.** FFT and Winograd do less arithmetic than is counted and move more
bytes. Other kernels skip work on padded borders. An effective rate above the measured peak is then not an error.

The rule does not report fewer operations if the device cannot count those of its tensor cores.
""",
    _executed_work,
    "cause",
    states_share=False,
)

"""A convolution that executes far more, or far less, than is counted, by hardware counters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.convolution import Convolution, convolution_of
from profiler_kit.diagnosis.pairs import measured
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import node_of, ratio
from profiler_kit.diagnosis.words import listing, opening, quoted, sentences, threshold, times, work
from profiler_kit.records.families import FEWER_OPERATIONS, FFT, family_words
from profiler_kit.records.laboratory import ConvolutionPart, ConvolutionTiming, KernelCounters
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# A third of the work is padding. Below, tiles at an image's border and a bias may be all of it.
PADDED: Final = 1.5
# Winograd for 3x3 kernels executes 0.44 (2x2 tiles) to 0.7 of the counted work, its transforms included; FFT far less.
FEWER: Final = 0.7
# Less of the device's time changes no step, whatever is executed in it.
LEAST_SHARE: Final = 0.05
# A tenth of the device's time spent on padding is more than a change of configuration often brings.
MEDIUM: Final = 0.10
# Widths in channels that libraries cut tiles to.
MULTIPLES: Final = (8, 16, 32, 64, 128)
# How near the channels' padding must come to the measured factor to be called its reason: a bias and borders add a little.
EXPLAINED_WITHIN: Final = 0.05
# So many input channels or fewer are the data's own, as an image's three are: nobody can choose them.
CHANNELS_OF_DATA: Final = 4

WORDS: Final[dict[ConvolutionPart, str]] = {
    "fprop": "forward",
    "dgrad": "for its input's gradient",
    "wgrad": "for its weight's gradient",
}

DOC = f"""
Hardware counters (`--counters`) say how many operations a convolution's kernels execute; the count says how many it is asked
for, two per multiply-accumulate. Looked at are the parts of convolutions (forward, gradient by data, by weight) that take at
least {threshold(LEAST_SHARE)} of the device's time.

**At least {PADDED:g}x the counted work:** padding. Kernels work in tiles that are made for so many channels, and 50 channels in
a tile for 64 are computed as 64. `medium` where at least {threshold(MEDIUM)} of the device's time goes into what is padded (if
time goes by operations), otherwise `low`. Input and output channels, or one of the two, are rounded up to multiples of
{", ".join(map(str, MULTIPLES))}; where that makes up the measured factor within {threshold(EXPLAINED_WITHIN)}, the nearest is
named, and what other channels would execute in the same tiles: **computed, not measured**, since the library may take another
kernel.

**Less than {FEWER:g}x:** the algorithm does less arithmetic than is counted, as FFT and Winograd do, and moves more bytes for it;
or kernels skip what lies in padding. `info`: a rate computed from the count is then no share of what the device can do. Silent
where the device can't count its tensor cores' operations.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One part of a convolution in one run, with what was counted and what was executed."""

    run: ConfigRun
    timing: ConvolutionTiming
    counters: KernelCounters
    counted_flops: int
    share: float

    @property
    def factor(self) -> float:
        """Executed over counted."""
        return self.counters.flops / self.counted_flops

    @property
    def padding(self) -> float:
        """The share of the device's time that goes into padding, if time goes by operations."""
        return self.share * (1.0 - 1.0 / self.factor)


def check(report: Report) -> Iterator[Finding]:
    """Fires at most twice for a layer: on what is padded, and on what is executed less than counted."""
    padded: dict[str, list[_Case]] = {}
    fewer: dict[str, list[_Case]] = {}
    for run in measured(report):
        for case in _cases(report, run):
            if case.factor >= PADDED:
                padded.setdefault(case.timing.path, []).append(case)
            elif case.factor < FEWER and case.counters.complete:
                fewer.setdefault(case.timing.path, []).append(case)
    for cases in padded.values():
        yield _of_padding(report, cases)
    for cases in fewer.values():
        yield _of_fewer(cases)


def _cases(report: Report, run: ConfigRun) -> Iterator[_Case]:
    for timing in run.convolutions:
        share = ratio(timing.kernel_ns, run.device_ns)
        macs, node = timing.macs, node_of(report.static, timing.path)
        if macs is None and node is not None and convolution_of(node) is not None:
            macs = node.forward.macs  # each of the two gradients asks for as much as the forward pass
        if timing.counters is None or not macs or share is None or share < LEAST_SHARE:
            continue
        yield _Case(run=run, timing=timing, counters=timing.counters, counted_flops=2 * macs, share=min(share, 1.0))


def _of_padding(report: Report, cases: list[_Case]) -> Finding:
    run = cases[0].run
    here = sorted((case for case in cases if case.run is run), key=lambda case: -case.padding)
    worst = here[0]
    stake = min(1.0, sum(case.padding for case in here))
    node = node_of(report.static, worst.timing.path)
    conv = convolution_of(node) if node is not None else None
    tiles = _tiles(conv, worst.factor)
    return RULE.finding(
        severity="medium" if stake >= MEDIUM else "low",
        title=f"{opening(worst.timing.path)} executes {times(worst.factor)} its counted FLOPs under {quoted(run)}: padding",
        explanation=sentences(
            _amounts(worst),
            _more_parts(here[1:]),
            f"If time goes by operations, {percent(stake)} of the device's time goes into padding.",
            _reason(conv, tiles),
            _elsewhere(report, worst, cases),
        ),
        advice=_channels(tiles),
        evidence=(*_evidence(here), *_by_multiple(conv, worst.timing.path)),
        paths=(worst.timing.path,),
        weight=stake,
        computed=True,
    )


def _of_fewer(cases: list[_Case]) -> Finding:
    run = cases[0].run
    here = sorted((case for case in cases if case.run is run), key=lambda case: -case.share)
    case = here[0]
    names = list(dict.fromkeys(quoted(other.run) for other in cases if other.run is not run))
    room = case.timing.workspace_bytes
    rate = case.timing.flops_per_s
    family = FFT if case.timing.family == "gemm:complex" else case.timing.family  # the product between FFT's transforms
    return RULE.finding(
        severity="info",
        title=f"{opening(case.timing.path)} executes {times(case.factor)} its counted FLOPs under {quoted(run)}: "
        f"{family_words(family)}",
        explanation=sentences(
            _amounts(case),
            _more_parts(here[1:]),
            f"{family_words(family)} does less arithmetic than a direct sum and moves more bytes."
            if family in FEWER_OPERATIONS
            else "Its kernels skip work that is counted, as where a window lies in padding.",
            f"This part moves {text(case.counters.dram_bytes, 'bytes')} of DRAM.",
            f"So its effective {text(rate, 'flops/s')}, by count, is no share of what the device can do."
            if rate is not None
            else "",
            f"The same holds under {listing(names)}." if names else "",
        ),
        advice="Judge it by its time. "
        + (
            f"It takes {text(room, 'bytes')} of workspace: where that is not free, the library falls back to another algorithm."
            if room
            else "Where its workspace does not fit into free memory, the library falls back to another algorithm."
        ),
        evidence=_evidence(here),
        paths=(case.timing.path,),
        weight=case.share,
    )


def _amounts(case: _Case) -> str:
    return (
        f"{opening(case.timing.path)} is asked for {work(case.counted_flops, 'FLOP')} {WORDS[case.timing.part]} and "
        f"executes {work(case.counters.flops, 'FLOP')}, by hardware counters."
    )


def _more_parts(cases: list[_Case]) -> str:
    said = [f"{times(case.factor)} {WORDS[case.timing.part]}" for case in cases]
    return f"It executes {listing(said)} too." if said else ""


def _elsewhere(report: Report, worst: _Case, cases: list[_Case]) -> str:
    """What the same part executes in the other runs that were counted."""
    others = [
        f"{times(case.factor)} under {quoted(case.run)}"
        for run in measured(report)
        if run is not worst.run
        for case in _cases(report, run)
        if (case.timing.path, case.timing.part) == (worst.timing.path, worst.timing.part)
    ]
    return f"The same part executes {listing(others)}." if others else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiles:
    """Tiles for multiples of so many channels, on one side of the product or on both, and what a convolution is in them."""

    conv: Convolution
    multiple: int
    pads_in: bool = True
    pads_out: bool = True

    @property
    def each(self) -> tuple[int, int]:
        """Input and output channels of one group, which is what a tile holds."""
        return self.conv.channels_in // self.conv.groups, self.conv.channels_out // self.conv.groups

    def up(self, cin: int, cout: int) -> tuple[int, int]:
        """The channels as they are computed."""
        step = self.multiple
        return (-(-cin // step) * step if self.pads_in else cin), (-(-cout // step) * step if self.pads_out else cout)

    def down(self, cin: int, cout: int) -> tuple[int, int]:
        """The most channels that fill tiles and are no more than these, at least one tile."""
        step = self.multiple
        return (
            max(step, cin // step * step) if self.pads_in and cin > CHANNELS_OF_DATA else cin,
            max(step, cout // step * step) if self.pads_out else cout,
        )

    @property
    def factor(self) -> float:
        """Executed over counted, if channels were all that is padded."""
        return math.prod(self.up(*self.each)) / math.prod(self.each)


def _tiles(conv: Convolution | None, factor: float) -> _Tiles | None:
    """The tiles that explain `factor` best, the smaller of equal ones; None where none comes near."""
    sides = ((True, True), (False, True), (True, False))
    known = [_Tiles(conv=conv, multiple=m, pads_in=i, pads_out=o) for m in MULTIPLES for i, o in sides] if conv else []
    best = min(known, key=lambda tiles: abs(tiles.factor / factor - 1.0), default=None)
    return best if best is not None and abs(best.factor / factor - 1.0) <= EXPLAINED_WITHIN else None


def _reason(conv: Convolution | None, tiles: _Tiles | None) -> str:
    if conv is None:
        return ""
    if tiles is None:
        cin, cout = _Tiles(conv=conv, multiple=1).each
        return f"Its {cin} input and {cout} output channels, rounded up alone, do not make this factor."
    (cin, cout), (as_in, as_out) = tiles.each, tiles.up(*tiles.each)
    return (
        f"{cin} input and {cout} output channels, computed as {as_in} and {as_out} in tiles for multiples of "
        f"{tiles.multiple}, make {times(tiles.factor)}."
    )


def _channels(tiles: _Tiles | None) -> str:
    if tiles is None:
        return "Try channels in multiples of 64, and channels_last: which tiles are taken is the library's choice."
    cin, cout = tiles.each
    now, less = math.prod(tiles.up(cin, cout)), tiles.down(cin, cout)
    as_in, as_out = tiles.up(cin, cout)
    more = (cin if cin <= CHANNELS_OF_DATA else as_in, as_out)
    left = math.prod(tiles.up(*less)) / now
    group = " in each group" if tiles.conv.groups > 1 else ""
    narrow = [each for m in MULTIPLES if m < tiles.multiple and (each := replace(tiles, multiple=m)).factor < PADDED]
    return sentences(
        f"Choose channels that fill the tiles{group}: {more[0]} -> {more[1]} would execute no more than {cin} -> {cout} do now"
        + (f", {less[0]} -> {less[1]} {percent(left)} of it." if left < 1.0 else "."),
        f"A kernel with tiles for multiples of {narrow[-1].multiple} would execute {times(narrow[-1].factor)}: "
        "torch.backends.cudnn.benchmark = True lets cuDNN look for one."
        if narrow
        else "",
        "Computed from the tiles, not measured: the library may take other kernels for other channels.",
    )


def _evidence(cases: list[_Case]) -> Iterator[Evidence]:
    for case in cases:
        yield from known(
            f"{case.timing.path}, {case.timing.part}, {case.run.config.name}",
            ("executed over counted", case.factor, "ratio"),
            ("executed FLOPs", case.counters.flops, "flops"),
            ("counted FLOPs", case.counted_flops, "flops"),
            ("DRAM bytes", case.counters.dram_bytes, "bytes"),
            ("share of device time", 100.0 * case.share, "percent"),
            ("kernel", case.timing.kernel, "text"),
        )


def _by_multiple(conv: Convolution | None, path: str) -> Iterator[Evidence]:
    for multiple in MULTIPLES:
        if conv is not None:
            factor = _Tiles(conv=conv, multiple=multiple).factor
            yield from known(f"{path}, computed", (f"factor in tiles of {multiple} channels", factor, "ratio"))


RULE = Rule("executed_work", DOC, check, "cause")

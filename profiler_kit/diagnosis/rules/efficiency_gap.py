"""A convolution that reaches little of the ceiling while another one of the same step reaches much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import attempt
from profiler_kit.diagnosis.convolution import MULTIPLE, channels_of
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import node_of
from profiler_kit.diagnosis.words import capital, layer, listing, phase, quoted, sentences, threshold
from profiler_kit.records.families import FEWER_OPERATIONS, algorithm, family_words
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.roofline import Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# Under a third of what the device reaches in this arithmetic something is in the way; past 60 % it is as good as it gets.
LOW: Final = 0.30
HIGH: Final = 0.60
# An op below a tenth of the device time can't change the step by more than that; a peer must take long enough to be timed.
LEAST_SHARE: Final = 0.10
PEER_SHARE: Final = 0.02
# A fifth of the step is more than most changes to a model bring.
LARGE: Final = 0.20
# Conversions of this part of an op's time are named as a cause.
LAYOUT_SHARE: Final = 0.10
_PARTS: Final = {"fprop": "the forward pass", "dgrad": "the gradient by data", "wgrad": "the gradient by weight"}

DOC = f"""
An op of the baseline (a layer's forward pass, or one of its gradients where those were measured apart) that takes at least
{threshold(LEAST_SHARE)} of the device time reaches less than {threshold(LOW)} of the ceiling of its arithmetic, while
another op (from {threshold(PEER_SHARE)} of the time) reaches more than {threshold(HIGH)}: the device can, so this op
should. Names what is known to be in the way: channels that are no multiple of {MULTIPLE}, layout conversions, an algorithm
that takes no workspace. FFT and Winograd, which execute fewer operations than are counted, and ops that the bandwidth binds
are left out. `high` where {threshold(LARGE)} of the device time would be saved at the peer's rate, else `medium`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Op:
    """One op: whose, what part, how long, at which share of the ceiling, and how it was done."""

    path: str
    part: str
    ns: int
    share: float
    rate: float
    math: str
    family: str
    layout_ns: int = 0
    workspace_bytes: int | None = None

    @property
    def said(self) -> str:
        return f"{self.part} of {layer(self.path)}"


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline's op with most to gain."""
    run = report.baseline()
    line = report.roofline_of(run) if run is not None else None
    if run is None or line is None or not run.device_ns or run.clock != "kernel" or report.static is None:
        return
    ops = list(_parts(run, line) if run.convolutions else _layers(report, run, line))
    peers = [op for op in ops if op.share > HIGH and op.ns >= PEER_SHARE * run.device_ns]
    slow = [op for op in ops if op.share < LOW and op.ns >= LEAST_SHARE * run.device_ns]
    if not peers or not slow:
        return
    peer = max(peers, key=lambda op: op.share)
    slow.sort(key=lambda op: -_at_stake(op, peer))
    worst = slow[0]
    stake = min(1.0, sum(_at_stake(op, peer) for op in slow) / run.device_ns)
    tried = attempt(report, run, ("benchmark", "channels_last"))
    source = "measured" if line.roof.source == "measured" else "by the datasheet"
    reasons = list(_reasons(report, worst))
    others = [f"{op.said} ({percent(op.share)})" for op in slow[1:]]
    yield RULE.finding(
        severity="high" if stake >= LARGE else "medium",
        title=f"{capital(worst.said)} reaches {percent(worst.share)} of the {worst.math} ceiling, {peer.said} "
        f"{percent(peer.share)}",
        explanation=sentences(
            f"In {quoted(run)} it takes {text(worst.ns, 'ns')}, by {family_words(worst.family)} at "
            f"{text(worst.rate, 'flops/s')}; the ceiling is {text(line.roof.peak(worst.math), 'flops/s')} ({source}).",
            f"So it is with {listing(others)}; together {percent(stake)} of the device time would be saved."
            if others
            else f"At the other's share of its ceiling it would save {percent(stake)} of the device time.",
            f"In the way: {listing(reasons)}." if reasons else "",
            tried.sentence(),
        ),
        advice="Check which algorithm it runs by under other configurations, round its channels to a multiple of "
        f"{MULTIPLE}, and leave free memory for workspaces.",
        evidence=tuple(piece for op in (worst, peer, *slow[1:]) for piece in _evidence(op, run)),
        paths=(op.path for op in slow),
        attempt=tried,
        weight=stake,
    )


def _at_stake(op: _Op, peer: _Op) -> float:
    """The ns that the op would save at the peer's share of the ceiling."""
    return op.ns * (1.0 - op.share / peer.share)


def _parts(run: ConfigRun, line: Roofline) -> Iterator[_Op]:
    bytes_bind = {(one.path, one.phase) for one in line.layers if one.binds == "memory"}
    for one in run.convolutions:
        peak, rate = line.roof.peak(one.math or ""), one.flops_per_s
        bound = (one.path, "forward" if one.part == "fprop" else "backward") in bytes_bind
        if peak is None or rate is None or one.math is None or bound or one.family in FEWER_OPERATIONS:
            continue
        yield _Op(
            path=one.path,
            part=_PARTS[one.part],
            ns=one.kernel_ns,
            share=rate / peak,
            rate=rate,
            math=one.math,
            family=one.family,
            layout_ns=one.layout_ns,
            workspace_bytes=one.workspace_bytes,
        )


def _layers(report: Report, run: ConfigRun, line: Roofline) -> Iterator[_Op]:
    nodes = {node.path: node for node in report.static.modules} if report.static is not None else {}
    timings = {(item.path, item.phase): item for item in run.modules}
    for one in line.layers:
        timing, node = timings.get((one.path, one.phase)), nodes.get(one.path)
        if timing is None or node is None or one.binds == "memory" or timing.kernel_ns <= 0:
            continue
        used = algorithm(timing.kernels)
        macs = node.cost(one.phase).macs
        peak = line.roof.peak(used.math) if used is not None and used.math is not None else None
        if used is None or used.math is None or peak is None or not macs or used.family in FEWER_OPERATIONS:
            continue
        rate = 2 * macs / (timing.kernel_ns * 1e-9)
        yield _Op(
            path=one.path,
            part=phase(one.phase),
            ns=timing.kernel_ns,
            share=rate / peak,
            rate=rate,
            math=used.math,
            family=used.family,
            layout_ns=sum(k.kernel_ns for k in timing.kernels if k.family == "conv:layout"),
        )


def _reasons(report: Report, op: _Op) -> Iterator[str]:
    node = node_of(report.static, op.path)
    channels = channels_of(node) if node is not None else None
    if channels is not None and channels.uneven:
        yield f"{listing([str(count) for count in channels.uneven])} channels, no multiple of {MULTIPLE}"
    if op.layout_ns > LAYOUT_SHARE * op.ns:
        yield f"layout conversions, {percent(op.layout_ns / op.ns)} of its time"
    if op.workspace_bytes == 0:
        yield "an algorithm that takes no workspace"


def _evidence(op: _Op, run: ConfigRun) -> Iterator[Evidence]:
    where = f"{op.path}, {op.part}, {run.config.name}"
    yield Evidence(name=f"share of the {op.math} ceiling", value=100.0 * op.share, unit="percent", where=where)
    yield Evidence(name="device time", value=op.ns, unit="ns", where=where)
    yield Evidence(name="effective rate", value=op.rate, unit="flops/s", where=where)
    yield Evidence(name="algorithm", value=family_words(op.family), unit="text", where=where)
    if op.workspace_bytes is not None:
        yield Evidence(name="workspace", value=op.workspace_bytes, unit="bytes", where=where)


RULE = Rule("efficiency_gap", DOC, check, "cause")

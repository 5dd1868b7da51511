"""An operation far below the peak of its arithmetic, while another of the same step comes close to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.convolution import CHANNEL_MULTIPLE, layer_channels
from profiler_kit.diagnosis.phrases import (
    capitalize,
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.timing import busy_share, module_node
from profiler_kit.records.claims import module_claims
from profiler_kit.records.families import (
    LAYOUT,
    REDUCED_OPERATION_FAMILIES,
    family_name,
    main_algorithm,
    math_name,
)
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.roofline import Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# Below a third of the device's peak something slows the operation down; above 60 % little is left to gain.
MAX_SLOW_PEAK_SHARE: Final = 0.30
MIN_PEER_PEAK_SHARE: Final = 0.60
# An operation below a tenth of the device time cannot save more than that. A peer must run long enough to be timed well.
MIN_DEVICE_SHARE: Final = 0.10
MIN_PEER_DEVICE_SHARE: Final = 0.02
# A fifth of the step is more than most changes to a model save.
HIGH_SAVING: Final = 0.20
# From this share of an operation's time, layout conversions are named as a cause.
MIN_LAYOUT_SHARE: Final = 0.10
_PART_NAMES: Final = {"fprop": "the forward pass", "dgrad": "the input gradient", "wgrad": "the weight gradient"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """One operation: its layer and part, its device time, its rate as a share of the peak, its arithmetic and algorithm."""

    path: str
    part: str
    kernel_ns: int
    peak_share: float
    flops_per_s: float
    math: str
    family: str
    layout_ns: int = 0
    workspace_bytes: int | None = None

    @property
    def name(self) -> str:
        """``the weight gradient of conv2``."""
        return f"{self.part} of {layer_name(self.path)}"


def _efficiency_gap(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the slow operation of the baseline that could save most."""
    run = report.baseline()
    line = report.roofline_of(run) if run is not None else None
    if run is None or line is None or not run.device_ns or run.clock != "kernel" or report.static is None:
        return
    operations = list(_convolution_parts(run, line) if run.convolutions else _layer_passes(report, run, line))
    peers = [
        operation
        for operation in operations
        if operation.peak_share > MIN_PEER_PEAK_SHARE and operation.kernel_ns >= MIN_PEER_DEVICE_SHARE * run.device_ns
    ]
    slow = [
        operation
        for operation in operations
        if operation.peak_share < MAX_SLOW_PEAK_SHARE and operation.kernel_ns >= MIN_DEVICE_SHARE * run.device_ns
    ]
    if not peers or not slow:
        return
    peer = max(peers, key=lambda operation: operation.peak_share)
    slow.sort(key=lambda operation: -_saved_ns(operation, peer))
    worst = slow[0]
    saved_share = min(1.0, fsum(_saved_ns(operation, peer) for operation in slow) / run.device_ns)
    other_configs = find_trials(report, run, ("benchmark", "channels_last"))
    source = "measured" if line.roof.source == "measured" else "datasheet"
    causes = list(_causes(report, worst))
    others = [f"{operation.name} ({percent(operation.peak_share)})" for operation in slow[1:]]
    math = math_name(worst.math)
    yield new_finding(
        severity="high" if saved_share >= HIGH_SAVING else "medium",
        title=f"{capitalize(worst.name)} reaches only {percent(worst.peak_share)} of the {math} peak, while {peer.name} reaches "
        f"{percent(peer.peak_share)}" + (f" of the {math_name(peer.math)} peak" if peer.math != worst.math else ""),
        explanation=join_sentences(
            f"In {quoted_name(run)} it takes {text(worst.kernel_ns, 'ns')} with {family_name(worst.family)}, at "
            f"{text(worst.flops_per_s, 'flops/s')}. The {source} peak is {text(line.roof.peak(worst.math), 'flops/s')}.",
            f"Also slow: {join_list(others)}. At the share of the peak that {peer.name} reaches, together they would save "
            f"{percent(saved_share)} of the device time."
            if others
            else f"At the share of the peak that {peer.name} reaches, it would save {percent(saved_share)} of the device time.",
            f"Known causes: {join_list(causes)}." if causes else "",
            other_configs.sentence(),
        ),
        advice="Compare the algorithms of this operation between configurations. Round its channels up to a multiple of "
        f"{CHANNEL_MULTIPLE}, and leave free memory for workspaces.",
        evidence=tuple(item for operation in (worst, peer, *slow[1:]) for item in _gap_evidence(operation, run)),
        paths=(operation.path for operation in slow),
        trials=other_configs,
        weight=saved_share * busy_share(report),
        claims=module_claims(operation.path for operation in slow),
    )


def _saved_ns(operation: _Operation, peer: _Operation) -> float:
    """The time that `operation` would save at the share of the peak that `peer` reaches, in ns."""
    return operation.kernel_ns * (1.0 - operation.peak_share / peer.peak_share)


def _convolution_parts(run: ConfigRun, line: Roofline) -> Iterator[_Operation]:
    """Yield the parts of convolutions that were measured separately, without those limited by memory bandwidth."""
    memory_bound = {(item.path, item.phase) for item in line.layers if item.binds == "memory"}
    for part in run.convolutions:
        peak, rate = line.roof.peak(part.math or ""), part.flops_per_s
        is_memory_bound = (part.path, "forward" if part.part == "fprop" else "backward") in memory_bound
        if (
            peak is None
            or rate is None
            or part.math is None
            or is_memory_bound
            or part.family in REDUCED_OPERATION_FAMILIES
        ):
            continue
        yield _Operation(
            path=part.path,
            part=_PART_NAMES[part.part],
            kernel_ns=part.kernel_ns,
            peak_share=rate / peak,
            flops_per_s=rate,
            math=part.math,
            family=part.family,
            layout_ns=part.layout_ns,
            workspace_bytes=part.workspace_bytes,
        )


def _layer_passes(report: Report, run: ConfigRun, line: Roofline) -> Iterator[_Operation]:
    """Yield the forward and backward passes of layers with MACs, without those limited by memory bandwidth."""
    nodes = {node.path: node for node in report.static.modules} if report.static is not None else {}
    timings = {(item.path, item.phase): item for item in run.modules}
    for item in line.layers:
        timing, node = timings.get((item.path, item.phase)), nodes.get(item.path)
        if timing is None or node is None or item.binds == "memory" or timing.kernel_ns <= 0:
            continue
        used = main_algorithm(timing.kernels)
        macs = node.cost(item.phase).macs
        peak = line.roof.peak(used.math) if used is not None and used.math is not None else None
        if used is None or used.math is None or peak is None or not macs or used.family in REDUCED_OPERATION_FAMILIES:
            continue
        rate = 2 * macs / (timing.kernel_ns * 1e-9)
        yield _Operation(
            path=item.path,
            part=phase_name(item.phase),
            kernel_ns=timing.kernel_ns,
            peak_share=rate / peak,
            flops_per_s=rate,
            math=used.math,
            family=used.family,
            layout_ns=sum(k.kernel_ns for k in timing.kernels if k.family == LAYOUT),
        )


def _causes(report: Report, operation: _Operation) -> Iterator[str]:
    node = module_node(report.static, operation.path)
    channels = layer_channels(node) if node is not None else None
    if channels is not None and channels.unaligned:
        yield f"{join_list([str(count) for count in channels.unaligned])} channels (not a multiple of {CHANNEL_MULTIPLE})"
    if operation.layout_ns > MIN_LAYOUT_SHARE * operation.kernel_ns:
        yield f"layout conversions ({percent(operation.layout_ns / operation.kernel_ns)} of its time)"
    if operation.workspace_bytes == 0:
        yield "an algorithm without workspace"


def _gap_evidence(operation: _Operation, run: ConfigRun) -> Iterator[Evidence]:
    where = f"{operation.path}, {operation.part}, {run.config.name}"
    share = 100.0 * operation.peak_share
    yield Evidence(name=f"share of the {math_name(operation.math)} peak", value=share, unit="percent", where=where)
    yield Evidence(name="device time", value=operation.kernel_ns, unit="ns", where=where)
    yield Evidence(name="effective rate", value=operation.flops_per_s, unit="flops/s", where=where)
    yield Evidence(name="algorithm", value=family_name(operation.family), unit="text", where=where)
    if operation.workspace_bytes is not None:
        yield Evidence(name="workspace", value=operation.workspace_bytes, unit="bytes", where=where)


EFFICIENCY_GAP = Rule(
    "efficiency_gap",
    f"""
Fires when an operation that takes at least {limit_percent(MIN_DEVICE_SHARE)} of the baseline's device time reaches less than
{limit_percent(MAX_SLOW_PEAK_SHARE)} of the peak of its arithmetic, while another operation (at least
{limit_percent(MIN_PEER_DEVICE_SHARE)} of the time) reaches more than {limit_percent(MIN_PEER_PEAK_SHARE)}. An operation is the
forward or backward pass of a layer; if the parts of convolutions were measured separately, it is one part. The peak was
measured on the device, or comes from the datasheet.

- `high`: at the efficiency of the other operation, the slow ones would save at least {limit_percent(HIGH_SAVING)} of the device
  time.
- `medium`: otherwise.

The finding lists known causes: channels that are not a multiple of {CHANNEL_MULTIPLE}, layout conversions, an algorithm without
workspace. The rule ignores FFT and Winograd, which execute fewer operations than are counted, and operations limited by
memory bandwidth.
""",
    _efficiency_gap,
    "cause",
    states_share=False,
)

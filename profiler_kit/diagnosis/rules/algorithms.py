"""A convolution with a slow algorithm, or an operation far below the peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials, find_trials
from profiler_kit.diagnosis.convolution import CHANNEL_MULTIPLE, layer_channels
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.pairs import count_differences, counterpart, plain_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    capitalize,
    factor_text,
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.timing import Efficiency, busy_share, efficiency, layer_timing, module_node
from profiler_kit.records.claims import module_claims
from profiler_kit.records.counts import COUNT_PHASES
from profiler_kit.records.families import (
    DIRECT,
    LAYOUT,
    REDUCED_OPERATION_FAMILIES,
    Algorithm,
    family_name,
    is_convolution,
    main_algorithm,
    math_name,
)
from profiler_kit.records.mean_step import LayerTiming
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.roofline import Roofline
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# With any algorithm, a layer below a tenth of the device time cannot change the step by more than that.
MIN_LAYER_SHARE: Final = 0.10
# The order of two algorithms within this factor depends on clocks and shapes.
MIN_FACTOR: Final = 1.5
# Among alternatives within this factor of the fastest, the one with the fewest changed flags is the best advice.
SIMILAR_FACTOR: Final = 1.05
# Settings that make cuDNN select among other kernels.
TRIES: Final = ("channels_last", "amp_bf16")
# A fifth of the step is more than most changes of a model save.
LARGE_SHARE: Final = 0.20
# Families that cuDNN uses if nothing better is supported or fits.
LAST_RESORTS: Final = {DIRECT: "older cuDNN kernels that do not use tensor cores"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Faster:
    """The same layer and phase in a run that computes it faster."""

    run: ConfigRun
    timing: LayerTiming
    used: Algorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One slow layer and phase of one run. `faster`: the better run; None for a last resort."""

    run: ConfigRun
    timing: LayerTiming
    used: Algorithm
    share: float
    rate: Efficiency | None
    faster: _Faster | None

    @property
    def factor(self) -> float:
        """Time of this algorithm over time of the better one; 1 without a better one."""
        return self.timing.kernel_ns / self.faster.timing.kernel_ns if self.faster is not None else 1.0

    @property
    def at_stake(self) -> float:
        """The share of the device time that the better algorithm saves; for a last resort, the whole share of the layer."""
        return self.share * (1.0 - 1.0 / self.factor) if self.faster is not None else self.share


def _slow_algorithm(report: Report) -> Iterator[Finding]:
    """Yield at most one finding per layer and kind."""
    groups: dict[tuple[str, bool], list[_Case]] = {}
    for run in plain_runs(report):
        for case in _cases(report, run):
            groups.setdefault((case.timing.path, case.faster is None), []).append(case)
    for cases in groups.values():
        of_first = sorted((c for c in cases if c.run is cases[0].run), key=lambda c: -c.at_stake)
        yield _finding(report, of_first, [c for c in cases if c.run is not cases[0].run])


def _cases(report: Report, run: ConfigRun) -> Iterator[_Case]:
    if run.clock != "kernel" or not run.device_ns or run.config.enabled is False:
        return
    for timing in run.modules:
        used = main_algorithm(timing.kernels)
        share = timing.kernel_ns / run.device_ns
        if used is None or not is_convolution(used.family) or share < MIN_LAYER_SHARE:
            continue
        better = _faster_run(report, run, timing, used)
        if better is not None or used.family in LAST_RESORTS:
            counted = next((name for name in COUNT_PHASES if name == timing.phase), None)
            rate = efficiency(report, run, timing.path, counted) if counted is not None else None
            yield _Case(run=run, timing=timing, used=used, share=share, rate=rate, faster=better)


def _faster_run(report: Report, run: ConfigRun, timing: LayerTiming, used: Algorithm) -> _Faster | None:
    candidates = []
    for other in plain_runs(report):  # rule `further_axes` covers runs with other settings
        other_timing = layer_timing(other, timing.path, timing.phase)
        other_used = main_algorithm(other_timing.kernels) if other_timing is not None else None
        if other is run or other.clock != "kernel" or other_timing is None or other_used is None:
            continue
        is_faster = 0 < other_timing.kernel_ns * MIN_FACTOR <= timing.kernel_ns
        if is_faster and other_used.family != used.family and _same_math(run, used, other, other_used):
            candidates.append(_Faster(run=other, timing=other_timing, used=other_used))
    if not candidates:
        return None
    best_ns = min(item.timing.kernel_ns for item in candidates)
    similar = [item for item in candidates if item.timing.kernel_ns <= SIMILAR_FACTOR * best_ns]
    return min(similar, key=lambda item: count_differences(run.config, item.run.config))


def _same_math(run: ConfigRun, used: Algorithm, other: ConfigRun, other_used: Algorithm) -> bool:
    if used.math is not None and other_used.math is not None:
        return used.math == other_used.math
    # without the arithmetic in a kernel name, compare the flags by which cuDNN selected the kernels
    return run.config.allow_tf32 is other.config.allow_tf32


def _finding(report: Report, cases: list[_Case], other_cases: list[_Case]) -> Finding:
    """Return one finding for `cases`, the phases of one layer in one run, sorted by the share at stake."""
    case = cases[0]
    better_run = case.faster.run if case.faster is not None else _tf32_counterpart(report, case)
    at_stake = min(1.0, fsum(c.at_stake for c in cases))
    is_baseline = case.run is report.baseline()
    trials = find_trials(report, case.run, TRIES if is_baseline else ())
    best = sweep_trial(case.run, better_run, noise_of(report)) or trials.trial
    names = ([better_run.config.name] if better_run is not None else []) + list(trials.tries)
    return new_finding(
        severity="low" if not is_baseline else "high" if at_stake >= LARGE_SHARE else "medium",
        title=_title(cases),
        explanation=join_sentences(
            *(_phase_sentences(c) for c in cases),
            _last_resort_sentences(report, case),
            _other_runs(other_cases),
        ),
        advice=_advice(case, better_run, facts_of(report)),
        evidence=tuple(e for c in cases for e in _slow_evidence(c)),
        paths=(case.timing.path,),
        trials=AdviceTrials(tries=tuple(dict.fromkeys(names)), trial=best),
        weight=at_stake * busy_share(report),
        claims=module_claims((case.timing.path,) if is_baseline else ()),
    )


def _tf32_counterpart(report: Report, case: _Case) -> ConfigRun | None:
    run = counterpart(report, case.run, "allow_tf32", True)
    return run if run is not None and run.failure is None else None


def _title(cases: list[_Case]) -> str:
    case, name = cases[0], layer_name(cases[0].timing.path)
    if case.faster is not None:
        return (
            f"Slow algorithm in {name}: {family_name(case.used.family)} takes {factor_text(case.factor)} as long as "
            f"{family_name(case.faster.used.family)}"
        )
    families = list(dict.fromkeys(family_name(c.used.family) for c in cases))
    share = percent(fsum(c.share for c in cases))
    return (
        f"Last-resort algorithm in {name}: {join_list(families)}, {share} of the device time in {quoted_name(case.run)}"
    )


def _phase_sentences(case: _Case) -> str:
    subject = f"{phase_name(case.timing.phase)} of {layer_name(case.timing.path)}"
    time = text(case.timing.kernel_ns, "ns")
    rate = f"In {quoted_name(case.run)}, {subject} {case.rate.sentence()}" if case.rate is not None else ""
    if case.faster is None:
        return rate or f"In {quoted_name(case.run)}, {subject} takes {time} with {family_name(case.used.family)}."
    return join_sentences(
        f"{capitalize(subject)} takes {time} in {quoted_name(case.run)} and {text(case.faster.timing.kernel_ns, 'ns')} in "
        f"{quoted_name(case.faster.run)}.",
        f"The faster run uses {family_name(case.faster.used.family)}, with the same arithmetic.",
        rate or f"The slower run uses {family_name(case.used.family)}.",
    )


def _last_resort_sentences(report: Report, case: _Case) -> str:
    if case.faster is not None:
        return ""
    reason = f"This is a last resort: {LAST_RESORTS[case.used.family]}."
    run = _tf32_counterpart(report, case)
    timing = layer_timing(run, case.timing.path, case.timing.phase) if run is not None else None
    used = main_algorithm(timing.kernels) if timing is not None else None
    if run is None or timing is None or used is None:
        return reason
    return (
        f"{reason} With TF32 allowed ({quoted_name(run)}), {phase_name(timing.phase)} takes {text(timing.kernel_ns, 'ns')} with "
        f"{family_name(used.family)}."
    )


def _other_runs(other_cases: list[_Case]) -> str:
    worst_by_run: dict[str, _Case] = {}
    for case in sorted(other_cases, key=lambda c: -c.at_stake):
        worst_by_run.setdefault(quoted_name(case.run), case)
    runs = [
        f"{name} ({phase_name(c.timing.phase)}: {family_name(c.used.family)}, {text(c.timing.kernel_ns, 'ns')})"
        for name, c in worst_by_run.items()
    ]
    return f"The same holds for {join_list(runs)}." if runs else ""


def _advice(case: _Case, better_run: ConfigRun | None, facts: Facts) -> Advice:
    if case.faster is not None:
        advice = Advice(f"Use the flags of {quoted_name(case.faster.run)}.")
        if case.faster.run.config.benchmark and not case.run.config.benchmark:
            search = "Set {code}: cuDNN then times its algorithms. Without it, cuDNN follows a heuristic."
            advice = advise(search, "torch.backends.cudnn.benchmark = True")
        return advice.then("A faster algorithm may need free memory for its workspace.")
    options = [] if facts.half else ["use bfloat16 or float16 with torch.autocast"]
    options.append("use a smaller kernel, or a stride before the layer")
    if better_run is not None:
        options.insert(0, "allow TF32 if its error is acceptable ({code})")
    tf32 = "torch.backends.cudnn.allow_tf32 = True"
    return advise(f"In order of effort: {'; '.join(options)}.", tf32 if better_run is not None else "")


def _slow_evidence(case: _Case) -> Iterator[Evidence]:
    where = f"{case.timing.path}, {case.timing.phase}, {case.run.config.name}"
    if case.faster is not None:
        faster_where = f"{case.timing.path}, {case.timing.phase}, {case.faster.run.config.name}"
        used = case.faster.used
        yield Evidence(name="factor", value=case.factor, unit="ratio", where=faster_where)
        yield Evidence(name="device time", value=case.faster.timing.kernel_ns, unit="ns", where=faster_where)
        yield Evidence(name="algorithm", value=family_name(used.family), unit="text", where=faster_where)
        yield Evidence(name="kernel", value=used.kernel, unit="text", where=faster_where)
    if case.rate is not None:
        yield from case.rate.evidence()
    else:
        yield Evidence(name="device time", value=case.timing.kernel_ns, unit="ns", where=where)
        yield Evidence(name="algorithm", value=family_name(case.used.family), unit="text", where=where)
    yield Evidence(name="kernel", value=case.used.kernel, unit="text", where=where)
    yield Evidence(name="share of device time", value=100.0 * case.share, unit="percent", where=where)


SLOW_ALGORITHM = Rule(
    "slow_algorithm",
    f"""
Fires if a convolution that takes at least {limit_percent(MIN_LAYER_SHARE)} of the device time in one phase runs with a slow
algorithm. The rule checks all runs with cuDNN on. There are two kinds:

- **Slow algorithm**: another run of the report computes the same layer and phase at least {MIN_FACTOR:g}x faster by kernel time,
  with another algorithm and the same arithmetic, so precision is equal.
- **Last resort**: cuDNN uses a kernel family that it selects only if nothing better is supported or fits:
  {join_list([family_name(family) for family in LAST_RESORTS])}. Rule `not_on_cudnn` covers PyTorch's own fallback.

Severity:

- `high`: the baseline is affected, and at least {limit_percent(LARGE_SHARE)} of its device time is at stake.
- `medium`: the baseline is affected.
- `low`: only other runs are affected.

The finding gives the effective FLOP/s (counted FLOPs over kernel time), and the share of the datasheet peak if device and
arithmetic are known. FFT and Winograd execute fewer operations than are counted, so they have no share of the peak. There is one
finding per layer and kind, for the first affected run. It names the other runs and their algorithms.
""",
    _slow_algorithm,
    "remedy",
    states_share=False,
)


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

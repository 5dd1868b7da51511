"""The verdict of a report: cost of a step, its bound, the main cause, and the best remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from profiler_kit.diagnosis.account import Account, account_of
from profiler_kit.diagnosis.bounds import HOST_BOUNDS, StepBound, device_shares, is_on_device, step_bound
from profiler_kit.diagnosis.idle_time import LARGE_IDLE_SHARE
from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import join_list, join_sentences, layer_name
from profiler_kit.diagnosis.ranking import MIN_ADDED_SHARE
from profiler_kit.diagnosis.recorded import readable_traces, without_profiler
from profiler_kit.diagnosis.registry import all_rules
from profiler_kit.diagnosis.remedies import advised_remedy, remedies
from profiler_kit.diagnosis.step_work import step_works
from profiler_kit.diagnosis.trace_cost import CAUSE_WORDS, trace_cost
from profiler_kit.records.claims import PEAK
from profiler_kit.records.counts import Forecast, StaticCount
from profiler_kit.records.families import family_name
from profiler_kit.records.report import Finding, Report, TraceReport
from profiler_kit.records.roofline import STEP
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import Saving
from profiler_kit.records.verdict import Bound, RankedRemedy, StepAfter, Verdict
from profiler_kit.units import percent, text

# Kinds of work that the verdict lists where no cause stands out, and the smallest share of a listed kind.
MAX_KINDS: Final = 3
MIN_KIND_SHARE: Final = 0.05
# From half of the roofline on, a layer cannot become more than twice as fast without a change of its work.
NEAR_ROOFLINE_PERCENT: Final = 50.0
# A layer with less of the counted work is one of many like it.
MIN_LARGEST_COUNT: Final = 0.1
# Idle causes below this part of the idle time are not named.
MIN_CAUSE_SHARE: Final = 0.25
# Less idle time is not mentioned.
MIN_IDLE: Final = 0.1
# Collectives that take less of the step do not change what bounds it.
MIN_COLLECTIVES: Final = 0.1
# A smaller unexplained share is not worth a sentence.
MIN_UNEXPLAINED: Final = 0.05
# A share that the title of the main cause states is not repeated.
SAME_SHARE: Final = 0.005
NOT_FINITE: Final = "not_finite"
BUSY_HOST: Final = "busy_host"
COLD_START: Final = "cold_start"
FAILED_RUNS: Final = "failed_runs"
READ_FIRST: Final = (NOT_FINITE, BUSY_HOST)  # rules about the measurement as a whole
# The verdict itself names the device work that was not recorded.
NOT_RECORDED: Final = "device_not_recorded"
# More devices than this are not listed one by one.
MAX_DEVICES: Final = 8
# Bounds that are busy time, and those that may be busy or idle time. All others are idle time.
BUSY_BOUNDS: Final[tuple[Bound, ...]] = ("compute", "memory bandwidth", "copies", "kernels", "operators")
EITHER_BOUNDS: Final[tuple[Bound, ...]] = ("overhead", "data", "communication")
_BOUNDS: Final[dict[Bound, str]] = {
    "compute": "computation (matrix products and convolutions)",
    "memory bandwidth": "memory bandwidth (work with few operations per byte)",
    "copies": "copies between host and device",
    "kernels": "kernels of several kinds",
    "operators": "operators on the CPU",
    "overhead": "the cost of many short operators (dispatch and Python)",
    "launches": "kernel launches",
    "python": "Python code on the host",
    "synchronization": "synchronization of host and device",
    "data": "data loading",
    "communication": "communication between ranks",
    "other devices": "waits of the devices for each other",
    "cold start": "work that happens once (cold start)",
    "compilation": "compilation",
    "memory allocation": "memory allocation on the device",
    "unknown": "idle time of unknown cause",
}


def verdict(report: Report | TraceReport) -> Verdict:
    """Return the verdict on `report`, whose findings are ranked."""
    readable = readable_traces(report) if isinstance(report, TraceReport) else report
    step = _step(readable)
    cause = _main_cause(report.findings)
    useful, without_gain = remedies(report, cause)
    is_bound = cause_is_bound(step, report.findings[cause - 1]) if step is not None and cause is not None else None
    if (
        step is not None
        and cause is not None
        and report.findings[cause - 1].rule == COLD_START
        and step.bound.kind in HOST_BOUNDS
    ):
        step = replace(step, bound=step.bound._replace(kind="cold start"))
    unexplained_busy = step.account.unexplained(idle=False) if step is not None else None
    unexplained_idle = step.account.unexplained(idle=True) if step is not None else None
    sentences = (
        _cost(report),
        *_warnings(report.findings),
        _bound(step, _traced_busy(report)) if step is not None else _largest_count(report),
        *_cause(report, step, cause, is_bound),
        _after_failure(report.findings, cause)
        or _remedy(useful, cause)
        or _untried(report, step, cause)
        or _how_to_record(report),
        _unexplained(unexplained_busy if cause is not None else 0.0, unexplained_idle),
    )
    return Verdict(
        sentences=tuple(sentence for sentence in sentences if sentence),
        bound=step.bound.kind if step is not None else None,
        busy=1.0 - step.account.idle if step is not None else None,
        idle=step.account.idle if step is not None else None,
        unexplained_busy=unexplained_busy,
        unexplained_idle=unexplained_idle,
        cause=cause,
        cause_is_bound=is_bound,
        remedies=useful,
        without_gain=without_gain,
        **_sequence(report, step),
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """The step that the verdict is about. `devices`: the busy shares of several devices of one process; empty for one."""

    account: Account
    bound: StepBound
    on_device: bool
    devices: tuple[float, ...]


def _step(report: Report | TraceReport) -> _Step | None:
    """The account and the bound of the step; None without times of the program."""
    if isinstance(report, TraceReport) and any(trace.hardware_counters for trace in report.traces):
        return None
    account = account_of(report)
    if not account.cells:
        return None
    return _Step(account, step_bound(report, account), is_on_device(report), device_shares(report))


class _Sequence(TypedDict, total=False):
    step_ns: int
    sequence: tuple[StepAfter, ...]
    device_work_ns: int


def _sequence(report: Report | TraceReport, step: _Step | None) -> _Sequence:
    """The step now, after each repair, and the work of the device, which is a share of the step."""
    step_ns = _step_ns(report)
    if step_ns is None or step is None:
        return {}
    sequence = step_sequence(report.findings, step_ns)
    work = _Sequence(device_work_ns=round((1.0 - step.account.idle) * step_ns)) if step.on_device else _Sequence()
    return {"step_ns": step_ns, "sequence": sequence, **work}


def _step_ns(report: Report | TraceReport) -> int | None:
    """The time of a step of the baseline, or of a single trace without the profiler."""
    if isinstance(report, Report):
        run = report.baseline()
        return run.step_ns.median if run is not None and run.step_ns is not None else None
    if len(report.traces) != 1:
        return None
    (trace,) = report.traces
    return trace.untraced_step_ns.median if trace.untraced_step_ns is not None else trace.step_ns


def _warnings(findings: tuple[Finding, ...]) -> Iterator[str]:
    """Warnings that the baseline computes NaN, or that other work took the cores while it was measured."""
    for rule in READ_FIRST:
        for number, finding in enumerate(findings, start=1):
            if finding.rule == rule and finding.severity in ("high", "medium"):
                yield f"Read first: {_clause(finding.title)} [{number}]."


def cause_is_bound(step: _Step, cause: Finding) -> bool:
    """Return whether `cause` claims time of the kind that bounds the step: busy or idle time."""
    is_busy = step.bound.kind in BUSY_BOUNDS or (step.bound.kind in EITHER_BOUNDS and step.account.idle <= 0.5)
    pools = {claim.pool for claim in cause.claims}
    if "site" in pools or (step.bound.kind in EITHER_BOUNDS and not step.on_device):
        return True
    return "busy" in pools if is_busy else not pools.isdisjoint(("idle", "host"))


def _how_to_record(report: Report | TraceReport) -> str:
    """How to record the device, where no trace has its work."""
    if not isinstance(report, TraceReport) or not report.traces or not all(t.is_unrecorded for t in report.traces):
        return ""
    number, finding = next(
        ((i, item) for i, item in enumerate(report.findings, start=1) if item.rule == NOT_RECORDED), (0, None)
    )
    if finding is None:
        return ""
    advised = advised_remedy(finding)
    return f"{_with_code(advised.text, advised.code)} [{number}]."


def _main_cause(findings: tuple[Finding, ...]) -> int | None:
    """Return the number of the finding that explains most, if it explains enough; a note does not."""
    notes = {rule.name for rule in all_rules() if rule.topic == "note"}
    return next((i for i, item in enumerate(findings, start=1) if _is_cause(item) and item.rule not in notes), None)


def _first_serious(findings: tuple[Finding, ...]) -> int | None:
    """The number of the first serious finding that the verdict does not state anyway."""
    serious = (i for i, finding in enumerate(findings, start=1) if finding.severity in ("high", "medium"))
    return next((i for i in serious if findings[i - 1].rule not in (*READ_FIRST, NOT_RECORDED)), None)


def _after_failure(findings: tuple[Finding, ...], cause: int | None) -> str:
    """What to do about a run that failed, where no cause of time is known: before any change of the model."""
    number = _first_serious(findings) if cause is None else None
    if number is None or findings[number - 1].rule != FAILED_RUNS:
        return ""
    return f"Try first: {advised_remedy(findings[number - 1]).text} [{number}]."


def _is_cause(finding: Finding) -> bool:
    """Whether the finding explains enough time to be the main cause."""
    return (finding.share or 0.0) >= MIN_ADDED_SHARE and PEAK not in finding.claims


def _cost(report: Report | TraceReport) -> str:
    if isinstance(report, TraceReport):
        return trace_cost(report)
    run = report.baseline()
    kind = "A training step" if report.target.mode == "train" else "A forward pass"
    if run is not None and run.step_ns is not None:
        return f"{kind} takes {_step_text(run)}."
    if report.runs:
        failures = Counter(run.failure.kind.replace("_", " ") for run in report.runs if run.failure is not None)
        return f"Nothing was measured: {_failed(len(report.runs))} ({join_list(list(failures))})."
    return f"{kind} {_counted(report.static)}." if report.static is not None else ""


def _failed(runs: int) -> str:
    return "the run failed" if runs == 1 else f"all {runs} runs failed"


def _step_text(run: ConfigRun) -> str:
    """The step with its interval, examples and peak memory."""
    assert run.step_ns is not None
    step = run.step_ns
    cost = f"{text(step.median, 'ns')} ({text(step.low, 'ns')} to {text(step.high, 'ns')})"
    if run.samples is not None and run.samples > 1:
        cost += f" for {run.samples:,} examples"
    if run.peak_allocated_bytes is not None:
        cost += f"; peak memory {text(run.peak_allocated_bytes, 'bytes')}"
    return cost


def _counted(static: StaticCount) -> str:
    memory = f" and {text(static.memory.peak_bytes, 'bytes')} of memory" if static.memory is not None else ""
    return f"needs {text(static.step.flops, 'flops')} FLOPs{memory}; counted, not run: {_predicted(static.forecast)}"


def _predicted(forecast: Forecast | None) -> str:
    """The predicted times with their intervals."""
    if forecast is None:
        return "no times"
    scaled = ", scaled from another card" if forecast.is_scaled else ""
    kernels, step = (
        f"{text(time.median, 'ns')} ({text(time.low, 'ns')} to {text(time.high, 'ns')})"
        for time in (forecast.kernel_ns, forecast.step_ns)
    )
    is_host_bound = forecast.host_ns.median > forecast.kernel_ns.median
    host = "" if forecast.host_factor == 1.0 else f" of factor {forecast.host_factor:g}"
    limit = f"limited by an eager host{host}" if is_host_bound else "limited by the kernels"
    return f"predicted on {forecast.device}{scaled}: kernels {kernels}, step {step}, {limit}"


def _traced_busy(report: Report | TraceReport) -> float | None:
    """The busy share of a single trace, where shares are those of the step without the profiler; otherwise None."""
    if not isinstance(report, TraceReport) or len(report.traces) != 1:
        return None
    (trace,) = report.traces
    return trace.busy_share if without_profiler(trace) is not trace else None


def _bound(step: _Step, traced_busy: float | None) -> str:
    """What limits the step, and the shares of it that show this."""
    account, bound = step.account, step.bound
    if step.on_device:
        device = "the device is"
        if step.devices:
            listed = join_list([percent(share) for share in step.devices[:MAX_DEVICES]])
            more = f" and {len(step.devices) - MAX_DEVICES} more" if len(step.devices) > MAX_DEVICES else ""
            device = f"{len(step.devices)} devices, busy {listed}{more}, are on average"
        busy, idle = f"{device} busy {percent(1.0 - account.idle)}", f"{device} idle {percent(account.idle)}"
    else:
        busy = idle = f"operators take {percent(1.0 - account.idle)}"
    is_idle = account.idle > 0.5 and step.on_device
    shares = f"{idle if is_idle else busy} of the time"
    if traced_busy is not None:
        traced = percent(1.0 - traced_busy if is_idle else traced_busy)
        shares += f" without the profiler ({traced} with it)"
    if account.collectives >= MIN_COLLECTIVES and bound.kind != "communication" and not is_idle:
        shares += f", {percent(account.collectives)} with collectives only"
    if account.idle >= MIN_IDLE:
        longest, *others = account.causes.items()
        causes = [longest, *(item for item in others[:1] if item[1] >= MIN_CAUSE_SHARE * account.idle)]
        prefix = "" if is_idle else "idle: " if step.on_device else "the rest: "
        shares += (
            f" ({prefix}{', '.join(f'{CAUSE_WORDS.get(cause, cause)} {percent(share)}' for cause, share in causes)})"
        )
    own = percent(bound.share)
    is_shown = bound.kind not in ("communication", "data") or own in shares
    own = "" if is_shown else f" ({own} of the time)"
    if bound.late_rank is not None:
        return f"Rank {bound.late_rank}, which the others wait for, is bound by {_BOUNDS[bound.kind]}; of all ranks, {shares}."
    return f"Bound by {_BOUNDS[bound.kind]}{own}: {shares}."


def _largest_count(report: Report | TraceReport) -> str:
    """The module with the most work of a counted step, where no times exist."""
    static = report.static if isinstance(report, Report) else None
    if static is None or not static.step.flops:
        return ""
    flops = Counter(
        {module.path: (module.forward + module.backward + module.recompute).flops for module in static.modules}
    )
    path, most = flops.most_common(1)[0] if flops else ("", 0)
    if not most:
        return ""
    share = most / static.step.flops
    if share < MIN_LARGEST_COUNT:
        return f"No layer has more than {percent(share)} of the FLOPs."
    return f"Most work: {layer_name(path)} with {percent(share)} of the FLOPs."


def _cause(report: Report | TraceReport, step: _Step | None, cause: int | None, is_bound: bool | None) -> Iterator[str]:
    """The finding that explains most. Without one: where the time is, and the first finding about something else.

    `is_bound`: whether the finding is about the bound of the step; if not, the sentence says of what part it is.
    """
    findings = report.findings
    if cause is not None:
        finding = findings[cause - 1]
        rule = next((rule for rule in all_rules() if rule.name == finding.rule), None)
        topic = rule.topic if rule is not None else ""
        if topic == "reading" or finding.severity == "low":  # nothing that has to be repaired
            prefix = "Read first" if topic == "reading" else "Largest part"
            yield f"{prefix}: {_clause(finding.title)} [{cause}]."
            return
        several = isinstance(report, TraceReport) and len(report.traces) > 1
        share = finding.share or 0.0
        is_stated = rule is not None and rule.states_share and abs(finding.weight - share) < SAME_SHARE
        is_stated |= finding.saving is not None
        share_text = "" if is_stated else f", {percent(share)} of the time{' of all traces' if several else ''}"
        prefix = f"Main cause{share_text}"
        if is_bound is False:
            pool = "idle" if any(claim.pool in ("idle", "host") for claim in finding.claims) else "busy"
            prefix = f"Findings explain {pool} time rather than the bound; most{share_text}"
        yield f"{prefix}: {_clause(finding.title)} [{cause}]."
        if finding.saving is not None:
            yield saving_sentence(finding.saving)
        return
    if step is not None and step.account.idle < LARGE_IDLE_SHARE:
        yield _no_cause(report)
    if (number := _first_serious(findings)) is not None:
        yield f"Main finding: {_clause(findings[number - 1].title)} [{number}]."


def saving_sentence(saving: Saving) -> str:
    """Return what a step saves without a cause, with the range of the estimate."""
    return (
        f"Once repaired, a step would take about {percent(saving.median)} less time "
        f"({percent(saving.low)} to {percent(saving.high)}, from a replay of the trace)."
    )


def _no_cause(report: Report | TraceReport) -> str:
    """Where the time of a step without a cause is: the largest kinds of work, and the part of the roofline that they reach."""
    works = list(step_works(report))
    times = Counter[str]()
    for work in works:
        for item in work.kernels:
            times[item.family.partition(":")[0]] += item.ns
    spans_ns = sum(work.span_ns for work in works)
    kinds = [
        f"{family_name(family)} ({percent(ns / spans_ns)})"
        for family, ns in times.most_common(MAX_KINDS)
        if ns >= MIN_KIND_SHARE * spans_ns
    ]
    if not kinds:
        return ""
    return join_sentences(f"No single cause stands out. The time goes to {join_list(kinds)}.", _attained(report))


def _attained(report: Report | TraceReport) -> str:
    """How near to the shortest possible step the layers are; empty without a roofline, or where caches exceed it."""
    line = report.roofline_of(report.baseline()) if isinstance(report, Report) else None
    step = next((phase for phase in line.phases if phase.phase == STEP), None) if line is not None else None
    if line is None or step is None or step.attained_percent is None or step.attained_percent > 100.0:
        return ""
    reached = f"The layers reach {text(step.attained_percent, 'percent')} of the {line.roof.source} roofline"
    if step.attained_percent >= NEAR_ROOFLINE_PERCENT:
        return f"{reached}: a much faster step needs less work, a smaller data type or faster hardware."
    return f"{reached}; --by layer shows the slowest layers."


def _untried(report: Report | TraceReport, step: _Step | None, cause: int | None) -> str:
    """What to do first where no finding advises anything: record again, or measure other settings if none was measured."""
    if isinstance(report, TraceReport) and step is not None and cause is None and step.bound.kind == "unknown":
        synchronized = "torch.cuda.synchronize() before the first one"
        return f"Try first: record a few whole steps, with {synchronized}, and look for other processes on the device."
    if not isinstance(report, Report) or step is None or cause is not None or len(measured_runs(report)) != 1:
        return ""
    if report.target.is_loop:
        return "Try first: `profiler_kit analyze` on the model, to measure other settings (benchmark, bfloat16, memory layout)."
    return "Try first: a longer --budget, to measure other settings too (bfloat16, memory layout)."


def _clause(title: str) -> str:
    return title.removesuffix(".")


def _remedy(useful: tuple[RankedRemedy, ...], cause: int | None) -> str:
    """The best remedy. One that was only estimated treats the main cause, or the sentence says that none does."""
    if not useful:
        return ""
    best = useful[0]
    action = best.code
    if best.config is None or not action or action.startswith("-"):
        action = _with_code(best.action, best.code)
    gain = best.gain_percent
    numbers = "".join(f" [{number}]" for number in best.findings[:1])
    if best.is_measured and gain is not None:
        low, high = best.gain_low_percent, best.gain_high_percent
        interval = f" ({low:.1f} to {high:.1f} %)" if low is not None and high is not None else ""
        measure = "peak memory" if best.about == "peak" else "time per example" if best.per_example else "time"
        return f"Best measured: {action} saves {text(gain, 'percent')} of the {measure}{interval}{numbers}."
    untreated = "" if cause is None or cause in best.findings else f"No change is known to treat [{cause}]. "
    return f"{untreated}Try first: {action}{numbers}."


def _with_code(action: str, code: str) -> str:
    return action if code in action else f"{action}: {code}"


def _unexplained(busy: float | None, idle: float | None) -> str:
    """The time that no finding explains, idle and busy separately. Busy time alone needs no explanation."""
    if busy is None or idle is None or busy + idle < MIN_UNEXPLAINED:
        return ""
    parts = [f"{percent(share)} {kind}" for share, kind in ((busy, "busy"), (idle, "idle")) if share >= 0.001]
    return join_sentences(f"Not explained by any finding: {' and '.join(parts)} time.")


# A repair that saves less of the step does not deserve a line in the sequence.
MIN_SAVING: Final = 0.05
MAX_REPAIRS: Final = 4


def step_sequence(findings: Sequence[Finding], step_ns: int) -> tuple[StepAfter, ...]:
    """Return what a step of `step_ns` takes after each repair, in the order of `findings`, which are ranked.

    Only findings with a replayed saving count. A finding that saves nothing now but would after another repair is part of it.
    """
    steps: list[StepAfter] = []
    left = 1.0
    for number, finding in enumerate(findings, start=1):
        if finding.saving is None or (finding.share or 0.0) < MIN_SAVING or len(steps) == MAX_REPAIRS:
            continue
        left = max(0.0, left - (finding.share or 0.0))
        steps.append(StepAfter(finding=number, step_ns=round(left * step_ns)))
    return tuple(steps)

"""A device that is idle because the host waited for it and launched nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from profiler_kit.diagnosis.facts import Facts
from profiler_kit.diagnosis.idle_time import (
    LARGE_IDLE_SHARE,
    LAUNCH_CAUSES,
    LAUNCH_CLAIMS,
    MIN_HOST_SHARE,
    wait_idle_ns,
)
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent, phase_name, plural
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.step_work import StepWork, idle_steps, worst_step
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import SyncWait
from profiler_kit.units import percent, text

# A quarter of the time is a large gain for the change of one line.
HIGH_SHARE: Final = 0.25
# A loop that reads its loss or a metric waits once or twice per step. With more waits, the host never launches ahead.
MIN_MANY_WAITS: Final = 8

# The code behind the operator that waits, its replacement, and the line to paste.
# Source: the operators that copy their result to the host.
_SIZE_DEPENDS_ON_VALUES: Final = (
    "boolean indexing or nonzero(): the size of the result depends on values",
    "Keep shapes fixed: {code} instead of x[mask], masks instead of nonzero().",
    "torch.where(mask, x, 0)",
)
_READS_NUMBER: Final = (
    "it reads a number from the device: .item(), float(tensor) or print(tensor)",
    "Keep results on the device{keep}, and read numbers {rarely}.",
    "total += loss.detach()",
)
_COPIES: Final = (
    "it copies a tensor to the host or to the device: .cpu(), .numpy(), .to(device)",
    "Copy after the loop, or with {code} from pinned memory; keep results on the device with x.detach() instead of x.cpu().",
    "tensor.to(device, non_blocking=True)",
)
_SOURCES: Final = {
    "aten::item": _READS_NUMBER,
    "aten::_local_scalar_dense": _READS_NUMBER,
    "aten::is_nonzero": (
        "Python reads a condition from the device: if tensor, while tensor",
        "Replace the branch by {code}, or check it {rarely}.",
        "torch.where(condition, a, b)",
    ),
    "aten::equal": (
        "torch.equal reads its result from the device",
        "Compare on the device with {code} and read the result {rarely}.",
        "(a == b).all()",
    ),
    "aten::nonzero": _SIZE_DEPENDS_ON_VALUES,
    "aten::index": _SIZE_DEPENDS_ON_VALUES,
    "aten::index_put_": _SIZE_DEPENDS_ON_VALUES,
    "aten::masked_select": _SIZE_DEPENDS_ON_VALUES,
    "aten::where": _SIZE_DEPENDS_ON_VALUES,
    "aten::repeat_interleave": (
        "the size of the result depends on values",
        "Pass {code} to repeat_interleave, so that it does not read the size from the device.",
        "output_size=...",
    ),
    "aten::to": _COPIES,
    "aten::_to_copy": _COPIES,
    "aten::copy_": _COPIES,
    "aten::cpu": _COPIES,
}
_SYNCHRONIZES: Final = (
    "the code waits for all work of the device",
    "Remove torch.cuda.synchronize() from the loop. To time the loop, synchronize once before and once after many steps.",
    "",
)
_OTHER: Final = (
    "",
    "Keep results on the device, copy with {code} from pinned memory, and read numbers {rarely}.",
    "non_blocking=True",
)

DOC = f"""
Fires if the device is idle for more than {limit_percent(MIN_HOST_SHARE)} of the step because the host waited for it (`.item()`,
`.cpu()`, `synchronize()`, boolean indexing). The host launches nothing while it waits, so the device has no work when the wait
ends. In a trace, idle time before launches counts up to the length of the waits that work follows: without them the host would
be ahead by this time. So short waits of a host that never catches up count little, and rule `launch_bound` covers the rest.
Idle time inside calls that read a number counts too. In a report only the gap after each wait counts.

- `high`: at least {limit_percent(HIGH_SHARE)} of the step.
- `medium`: below that.
- `low`: below {limit_percent(MIN_HOST_SHARE)}, but the host waits at least {MIN_MANY_WAITS} times per step, and the device is
  idle for at least {limit_percent(LARGE_IDLE_SHARE)} of the step. Each wait is short because the host is slower than the device
  anyway. The waits matter once launches are faster, and CUDA graphs cannot contain them.

The rule does not count waits during which the device has work, waiting for data, or blocking copies of a batch to the device
(rule `host_copies`). In a report, the tool's own reading of the loss does not count. It reads reports and traces.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline or for the trace with the largest idle share after waits."""
    if (worst := worst_step(idle_steps(report), lambda step: _own_share(step, report), lambda share: share)) is None:
        return
    step, share = worst.step, worst.match
    waits = _waits(step, report)
    calls = _calls_per_step(step, waits)
    longest = max(waits, key=lambda wait: (wait.idle_ns, wait.wait_ns), default=None)
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE else "medium" if share > MIN_HOST_SHARE else "low",
        title=f"Synchronization: the device is idle for {percent(share)} of the time because the host waited for it"
        if share > MIN_HOST_SHARE
        else f"Synchronization: the host waits for the device {calls} times{step.facts.each}, for {percent(share)} of the time",
        explanation=join_sentences(
            f"{step.prefix}The host launches nothing while it waits. Without its waits it would launch ahead of the device, "
            f"which is idle for {text(_idle_ns(step, report), 'ns')} of {text(step.span_ns, 'ns')} because of them.",
            ""
            if share > MIN_HOST_SHARE
            else "The waits are short because the host launches more slowly than the device works.",
            _longest_wait(longest),
            worst.others_sentence(),
        ),
        advice=_advice(longest, step.facts),
        evidence=(
            Evidence(name="share of idle time because of waits", value=100.0 * share, unit="percent", where=step.name),
            Evidence(name="idle time because of waits", value=_idle_ns(step, report), unit="ns", where=step.name),
            *(
                evidence_of(step.name, (f"wait in {longest.name}", longest.wait_ns, "ns"))
                if longest is not None
                else ()
            ),
        ),
        weight=share,
        claims=(*idle_claims("synchronization"), *LAUNCH_CLAIMS),
    )


def _waits(step: StepWork, report: Report | TraceReport) -> list[SyncWait]:
    """Return the waits that count. In a report, the worker itself reads the loss."""
    waits = [wait for wait in step.trace.syncs if wait.phase != "transfer"]
    return [wait for wait in waits if wait.phase != "loss"] if isinstance(report, Report) else waits


def _idle_ns(step: StepWork, report: Report | TraceReport) -> int:
    """Return the idle time because of the waits that count, at most that of the causes that it can have."""
    caused_ns = wait_idle_ns(step, _waits(step, report))
    waiting = [part for part in step.idle if part.cause == "synchronization" and part.phase != "transfer"]
    waiting_ns = sum(part.ns for part in waiting) if isinstance(report, TraceReport) else 0
    return min(max(caused_ns, waiting_ns), step.idle_ns("synchronization", *LAUNCH_CAUSES))


def _own_share(step: StepWork, report: Report | TraceReport) -> float | None:
    share = step.share(_idle_ns(step, report)) if step.on_device else 0.0
    if share > MIN_HOST_SHARE:
        return share
    is_idle = step.on_device and 1.0 - step.busy_share >= LARGE_IDLE_SHARE
    return share if is_idle and share > 0 and _calls_per_step(step, _waits(step, report)) >= MIN_MANY_WAITS else None


def _calls_per_step(step: StepWork, waits: Iterable[SyncWait]) -> int:
    return sum(wait.calls for wait in waits) // max(1, step.marked_steps)


def _longest_wait(longest: SyncWait | None) -> str:
    if longest is None:
        return ""
    during = f" in {phase_name(longest.phase)}" if longest.phase else ""
    place = f", from {longest.source}" if longest.source and longest.source != longest.name else ""
    source = _source(longest)[0]
    return (
        f"The host waits longest in {longest.name} ({longest.call}){during}{place}: {plural(longest.calls, 'call')}, "
        f"{text(longest.wait_ns, 'ns')}{f'; {source}' if source else ''}."
    )


def _advice(longest: SyncWait | None, facts: Facts) -> Advice:
    source = _OTHER if longest is None else _source(longest)
    _, sentences, code = source
    rarely = "every few hundred steps only" if facts.has_steps else "once, at the end"
    if source is _READS_NUMBER and not facts.trains:
        code = ""  # no loss to sum up
    return advise(sentences.format(keep=": {code}" if code else "", rarely=rarely, code="{code}"), code)


def _source(wait: SyncWait) -> tuple[str, str, str]:
    """Return the code behind a wait in words, its replacement in sentences, and the line to paste in them."""
    if wait.name in _SOURCES:
        return _SOURCES[wait.name]
    return _SYNCHRONIZES if "DeviceSynchronize" in wait.call else _OTHER


RULE = Rule("sync_waits", DOC, check, "cause", "both")

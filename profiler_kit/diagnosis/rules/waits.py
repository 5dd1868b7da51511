"""A host that waits for the device in each step: reading numbers, allocating memory, checking for NaN."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from profiler_kit.diagnosis.facts import Facts
from profiler_kit.diagnosis.idle_time import (
    LARGE_IDLE_SHARE,
    LAUNCH_CAUSES,
    LAUNCH_CLAIMS,
    MIN_HOST_SHARE,
    is_operator,
    wait_idle_ns,
)
from profiler_kit.diagnosis.phrases import Advice, advise, limit_percent, phase_name, plural
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, all_steps, idle_steps
from profiler_kit.records.claims import WAITS, Claim, idle_claims, phase_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import SyncWait
from profiler_kit.units import percent, text

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
_READS: Final = frozenset({"aten::item", "aten::is_nonzero", "aten::equal"})
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


def _sync_waits(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    ns, waits = _idle_ns(step, report), _waits(step, report)
    share, calls = step.share(ns), _calls_per_step(step, waits)
    is_idle = 1.0 - step.busy_share >= LARGE_IDLE_SHARE
    if not step.on_device or not (share >= MIN_HOST_SHARE or (is_idle and ns > 0 and calls >= MIN_MANY_WAITS)):
        return None
    longest = max(waits, key=lambda wait: (wait.idle_ns, wait.wait_ns), default=None)
    return StepPart(
        ns=ns,
        share_name="share of idle time because of waits",
        title=f"Synchronization: the device is idle for {percent(share)} of the time because the host waited for it"
        if share >= MIN_HOST_SHARE
        else f"Synchronization: the host waits for the device {calls} times{step.facts.each}, for {percent(share)} of the time",
        sentences=(
            "The host launches nothing while it waits. Without its waits it would launch ahead of the device, "
            f"which is idle for {text(ns, 'ns')} of {text(step.span_ns, 'ns')} because of them.",
            ""
            if share >= MIN_HOST_SHARE
            else "The waits are short because the host launches more slowly than the device works.",
            _longest_wait(longest),
        ),
        advice=_sync_advice(longest, step.facts),
        measures=(
            ("idle time because of waits", ns, "ns"),
            *(((f"wait in {longest.name}", longest.wait_ns, "ns"),) if longest is not None else ()),
        ),
        claims=(WAITS, *_removed_operators(step, waits)),
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


def _sync_advice(longest: SyncWait | None, facts: Facts) -> Advice:
    source = _OTHER if longest is None else _source(longest)
    _, sentences, code = source
    rarely = "every few hundred steps only" if facts.has_steps else "once, at the end"
    if source is _READS_NUMBER and not facts.trains:
        code = ""  # no loss to sum up
    return advise(sentences.format(keep=": {code}" if code else "", rarely=rarely, code="{code}"), code)


def _removed_operators(step: StepWork, waits: Iterable[SyncWait]) -> tuple[Claim, ...]:
    """Return claims on the operators that go with their waits: they only read a number, or mostly make a size of values.

    Those of a loop go with the loop, which is a place of its own.
    """
    in_loops = {name for site in step.trace.sites for name in site.loop.split(", ")}
    calls: Counter[str] = Counter()
    for wait in waits:
        if _SOURCES.get(wait.name) is _SIZE_DEPENDS_ON_VALUES and wait.name not in in_loops:
            calls[wait.name] += wait.calls
    sized = [item.name for item in step.operators if 0 < item.calls <= 2 * calls[item.name]]
    names = {*(wait.name for wait in waits if wait.name in _READS), *sized}
    return tuple(Claim("site", "operator", name) for name in sorted(names))


def _source(wait: SyncWait) -> tuple[str, str, str]:
    """Return the code behind a wait in words, its replacement in sentences, and the line to paste in them."""
    if wait.name in _SOURCES:
        return _SOURCES[wait.name]
    return _SYNCHRONIZES if "DeviceSynchronize" in wait.call else _OTHER


SYNC_WAITS = step_rule(
    "sync_waits",
    _sync_waits,
    Shares(0.0, medium=MIN_HOST_SHARE, high=0.25),  # a quarter of the time is a large gain for the change of one line
    f"""
Fires if the device is idle for at least {limit_percent(MIN_HOST_SHARE)} of the step because the host waited for it (`.item()`,
`.cpu()`, `synchronize()`, boolean indexing). The host launches nothing while it waits, so the device has no work when the wait
ends. In a trace, idle time before launches counts up to the length of the waits that work follows: without them the host would
be ahead by this time. So short waits of a host that never catches up count little, and rule `launch_bound` covers the rest.
Idle time inside calls that read a number counts too. In a report only the gap after each wait counts.

A smaller share is enough if the host waits at least {MIN_MANY_WAITS} times per step, and the device is idle for at least
{limit_percent(LARGE_IDLE_SHARE)} of the step. Each wait is short then because the host is slower than the device anyway. The
waits matter once launches are faster, and CUDA graphs cannot contain them.

The rule does not count waits during which the device has work, waiting for data, or blocking copies of a batch to the device
(rule `host_copies`). In a report, the tool's own reading of the loss does not count.
""",
    steps=idle_steps,
)

ALLOCATION: Final = re.compile(r"(cuda|hip)(Malloc|Free|Host)")
RETRIES: Final = 'torch.cuda.memory_stats()["num_alloc_retries"]'
SETTING: Final = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def _allocation(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    frees = _frees(step)
    after_free_ns = sum(wait.idle_ns for wait in frees)
    ns = step.idle_ns("memory allocation") + min(after_free_ns, step.idle_ns("synchronization"))
    if not step.on_device:
        return None
    calls = [activity for activity in step.trace.activities if ALLOCATION.match(activity.name)]
    names = sorted({*(activity.name for activity in calls), *(wait.call for wait in frees)})
    count = sum(activity.calls for activity in calls) or sum(wait.calls for wait in frees)
    reason, advice = _reason_and_advice(step, names)
    return StepPart(
        ns=ns,
        share_name="idle time in allocation, share",
        title=f"Memory allocation: the device is idle for {percent(step.share(ns))} of the time while the host allocates or "
        "frees memory",
        sentences=(
            f"It is idle for {text(ns, 'ns')} {step.per_step}.",
            f"The calls: {', '.join(names)} ({plural(count, 'call')})." if names else "",
            "A steady step reuses memory and calls none of these.",
            reason,
        ),
        advice=advice,
        measures=(("idle time in allocation", ns, "ns"),),
        claims=idle_claims("memory allocation", "synchronization"),
    )


def _reason_and_advice(step: StepWork, names: list[str]) -> tuple[str, str]:
    """Return the reason for calls of these names, and advice."""
    checkpointing = " or activation checkpointing" if step.facts.trains else ""
    retries = [wait.name for wait in _frees(step) if is_operator(wait.name) and "conv" not in wait.name.lower()]
    if retries:
        return (
            f"Memory is nearly full: inside {retries[0]} the allocator frees its cache and tries again.",
            f"Use a smaller batch{checkpointing}. Against fragmentation, set {SETTING}. {RETRIES} counts "
            "these retries.",
        )
    if any(name.endswith("Free") for name in names):
        return (
            "Memory goes back to the driver in the step: the loop calls torch.cuda.empty_cache(), or memory is full and the "
            "allocator frees its cache and tries again.",
            f"Remove torch.cuda.empty_cache() from the loop. If {RETRIES} grows, memory is full: use a smaller batch"
            f"{checkpointing}, and set {SETTING} against fragmentation.",
        )
    if names and all("Host" in name for name in names):
        return (
            "The memory is pinned host memory.",
            "Pin buffers once, before the loop, and copy each batch into them"
            + (
                "; or use DataLoader(pin_memory=True), which pins in a thread of its own."
                if step.facts.has_loader
                else "."
            ),
        )
    return (
        "No memory is freed, so sizes change or the first steps were recorded." if names else "",
        f"Record after a few warm-up steps. If the calls remain, pad inputs to a few sizes and set {SETTING}.",
    )


def _frees(step: StepWork) -> list[SyncWait]:
    return [wait for wait in step.trace.syncs if wait.call.endswith("Free")]


MEMORY_ALLOCATION = step_rule(
    "memory_allocation",
    _allocation,
    Shares(MIN_HOST_SHARE, high=0.25),
    """
Fires if the device is idle while the host calls `cudaMalloc`, `cudaFree` or a function that allocates pinned memory, or because
`cudaFree` waited for the device.

PyTorch keeps freed memory in a cache, so a steady step allocates nothing from the driver. The calls tell why a step does:

- `cudaFree` inside an operator: memory is full, and the allocator frees its cache and tries again (a retry, counted by
  `torch.cuda.memory_stats()["num_alloc_retries"]`). Convolutions do not count: cuDNN's benchmark frees its workspaces.
- `cudaFree` elsewhere: the loop calls `torch.cuda.empty_cache()`, or a retry.
- `cudaMalloc` without `cudaFree`: sizes change, or the first steps were recorded.
- Pinned memory alone: the loop pins new buffers.

Calls of ten milliseconds and more are those that start the device (rule `cold_start`).
""",
    steps=idle_steps,
)

# Anomaly detection checks each gradient that a node returns, so it has about one check per node.
MIN_CHECKS_PER_NODE: Final = 0.5
MIN_NODES: Final = 4
_AUTOGRAD_NODE: Final = "autograd::engine::evaluate_function: "
_ACCUMULATE: Final = "AccumulateGrad"
_CHECK: Final = "aten::isnan"
# The operators of a check: (grad != grad).any().item().
_CHECK_OPERATORS: Final = frozenset(
    {
        "aten::isnan",
        "aten::ne",
        "aten::any",
        "aten::_is_any_true",
        "aten::is_nonzero",
        "aten::item",
        "aten::_local_scalar_dense",
    }
)


def _anomaly_mode(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    nodes = checks = check_ns = 0
    view_ns = 0.0
    for operator in step.trace.operators:
        if operator.name.startswith(_AUTOGRAD_NODE) and _ACCUMULATE not in operator.name:
            nodes += operator.calls
        elif operator.name in _CHECK_OPERATORS:
            check_ns += operator.host_self_ns
            checks += operator.calls if operator.name == _CHECK else 0
        elif operator.family == "view" and operator.calls:
            view_ns = max(view_ns, operator.host_self_ns / operator.calls)
    if nodes < MIN_NODES or checks < MIN_CHECKS_PER_NODE * nodes or step.span_ns <= 0:
        return None
    most_ns = step.trace.idle_ns if step.on_device else step.span_ns
    return StepPart(
        ns=min(check_ns + nodes * view_ns, most_ns),
        share_name="anomaly detection, share of the step",
        what="Anomaly detection is on and takes about",
        sentences=(
            f"Backward calls {_CHECK} {plural(checks, 'time')} for {plural(nodes, 'autograd node')}, and forward saves a stack "
            "trace for each.",
            "The host waits for the answer of each check." if step.on_device else "",
        ),
        advice="Turn it off outside debugging: {code}, and no detect_anomaly() around backward.",
        code="torch.autograd.set_detect_anomaly(False)",
        measures=(("checks for NaN", checks, "count"), ("autograd nodes", nodes, "count")),
        claims=(*idle_claims("synchronization"), *LAUNCH_CLAIMS)
        if step.on_device
        else phase_claims("forward", "loss", "backward"),
    )


ANOMALY_MODE = step_rule(
    "anomaly_mode",
    _anomaly_mode,
    Shares(0.0, medium=0.05, high=0.25),  # a debugging mode in a training loop is always worth a line
    f"""
Fires if backward calls `{_CHECK}` at least {MIN_CHECKS_PER_NODE:g} times per autograd node (with at least {MIN_NODES} nodes):
`torch.autograd.set_detect_anomaly(True)` checks every gradient for NaN, and on a device the host waits for each answer.

The share is an estimate: the host's time for the checks, plus the time to save a stack trace for each node in forward. A view
operator takes microseconds, and under anomaly detection mostly saves its stack trace, so the largest mean time of a view operator
counts once for each node. On a device, the share is at most that of its idle time.
""",
    steps=all_steps,
)

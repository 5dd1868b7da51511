"""Idle time and host waits of one step or trace: what happens once, what long calls and waits cause, what launches cause."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from profiler_kit.diagnosis.phrases import join_list
from profiler_kit.diagnosis.step_work import StepWork, Work, total_calls
from profiler_kit.records.claims import idle_claims, phase_claims
from profiler_kit.records.traces import (
    FIRST_STEP_FACTOR,
    HostActivity,
    IdleCause,
    IdleTime,
    SyncWait,
    TraceSummary,
)
from profiler_kit.units import text

# The usual gap between two launches is 5 to 50 us. A call that keeps the device idle for a millisecond is other work.
LONG_CALL_NS: Final = 1_000_000
# Idle time from here on is more than that of a sound loop.
LARGE_IDLE_SHARE: Final = 0.20
# The time between one step and the next of two steps may be that of any of them.
MIN_COMPARED_STEPS: Final = 3
# The profiler's own start adds some milliseconds to the first step.
FIRST_STEP_NS: Final = 50_000_000
MAX_LISTED_CALLS: Final = 3
# "<built-in function collect>", "<built-in method argmax of numpy.ndarray object at 0x7fb7>"
_BUILT_IN: Final = re.compile(r"\A<built-in (?:function|method) (\w+)(?: of (?:type|([\w.]+)) object at \w+)?>\Z")
# If half of the events were removed from the file, a gap may have held some of them.
MAX_MISSING_SHARE: Final = 0.5

# Causes of idle time in which the host works, but has not launched enough.
LAUNCH_CAUSES: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
LAUNCH_CLAIMS: Final = idle_claims(*LAUNCH_CAUSES)
COMMUNICATION_CLAIMS: Final = (*phase_claims("communication"), *idle_claims("communication"))
# Fewer launches save at most the idle time before launches. Less than a tenth of the step is not worth the change.
MIN_LAUNCH_SHARE: Final = 0.1
# Below `LARGE_IDLE_SHARE` of the step, launches have to be the main cause of the idle time that no other rule explains.
MIN_LAUNCH_SHARE_OF_IDLE: Final = 0.5
# The forward pass of a small model has ten launches. With fewer events and without a marked step, a trace does not show a loop.
MIN_DEVICE_EVENTS: Final = 10
# Operators that copy a number or the size of their result to the host and wait for it: launches and waits inside them are
# the price of reading.
_READS: Final = frozenset(
    f"aten::{name}"
    for name in (
        "item",
        "_local_scalar_dense",
        "is_nonzero",
        "equal",
        "nonzero",
        "masked_select",
        "_unique2",
        "unique_dim",
    )
)
# Moving a line that waits, or other work of the host, saves about its idle time. Below a twentieth it does not pay.
MIN_HOST_SHARE: Final = 0.05


def start_ns(step: StepWork) -> int:
    """Return the excess of the first step, without compilation; on a device, at most its idle time that may happen once.

    The excess is that over the median of the other steps, of at least three: in idle time, or without a device in duration.
    """
    excess_ns = _first_excess_ns(step.trace) - max(step.trace.compile_ns, step.idle_ns("compilation"))
    if step.on_device:
        excess_ns = min(excess_ns, step.idle_ns("cold start", *LAUNCH_CAUSES))
    return excess_ns if excess_ns >= FIRST_STEP_NS else 0


def single_ns(step: StepWork) -> int:
    """Return the time of the gap that happens once."""
    gap = single_gap(step.trace)
    return gap.longest_ns if gap is not None else 0


def repeats(step: StepWork, ns: int) -> bool:
    """Return whether idle time of `ns` is enough to matter without the first step, whose excess happens once."""
    return step.share(ns - start_ns(step)) >= MIN_HOST_SHARE


def long_calls(step: StepWork) -> tuple[HostActivity, ...]:
    """Return Python and operators in idle gaps of at least `LONG_CALL_NS`, outside data loading."""
    return tuple(
        activity
        for activity in step.trace.activities
        if activity.long_ns > 0
        and not activity.launched
        and activity.phase not in ("data", "communication")
        and not is_runtime_call(activity.name)
    )


def wait_idle_ns(step: StepWork, waits: Iterable[SyncWait]) -> int:
    """Return the idle time that `waits` of the host cause, at most the idle time of the causes that it can have.

    Without waits, the host is ahead by the time that it waited, and fills later gaps too, except those of long calls. Waits
    of a tool that times steps are not those of the user's loop, so only the gap after each of them counts.
    """
    followed = [wait for wait in waits if wait.idle_ns]
    caused_ns = sum(wait.idle_ns for wait in followed)
    possible_ns = step.idle_ns("synchronization", *LAUNCH_CAUSES)
    if not step.is_measured and followed:
        ahead_ns = sum(wait.wait_ns for wait in followed)
        long_ns = sum(activity.long_ns for activity in long_calls(step))
        reading_ns = sum(activity.ns for activity in step.trace.activities if _is_wait(activity))
        caused_ns = max(caused_ns, min(ahead_ns, possible_ns - long_ns), reading_ns)
    return min(caused_ns, possible_ns)


def launch_ns(step: StepWork) -> int:
    """Return the idle time before launches: without long calls, the first step's start, and what follows a wait."""
    launching_ns = step.idle_ns(*LAUNCH_CAUSES)
    waiting_ns = max(0, wait_idle_ns(step, step.trace.syncs) - step.idle_ns("synchronization"))
    long_ns = sum(activity.long_ns for activity in long_calls(step))
    # the start contains long calls
    return max(0, launching_ns - waiting_ns - max(long_ns, start_ns(step) - step.idle_ns("cold start")))


def launch_share(step: StepWork) -> float | None:
    """Return the share of the step that is idle before launches; None below the limits."""
    if step.trace.device_events < MIN_DEVICE_EVENTS and not step.marked_steps:
        return None
    launching_ns = launch_ns(step)
    share = step.share(launching_ns)
    if share < MIN_LAUNCH_SHARE:
        return None
    is_main = launching_ns >= MIN_LAUNCH_SHARE_OF_IDLE * step.idle_ns("unknown", *LAUNCH_CAUSES)
    return share if is_main or share >= LARGE_IDLE_SHARE else None


def launch_idle_ns(step: StepWork, items: Iterable[Work]) -> float:
    """Return the idle time before the launches of kernels `items`: their part of all launches, of the idle time of launches."""
    return (
        step.idle_ns(*LAUNCH_CAUSES) * total_calls(items) / max(1, total_calls(step.kernels)) if step.on_device else 0.0
    )


def launching_operators(step: StepWork) -> frozenset[str]:
    """Return the names of the operators that launch device work; empty where unknown."""
    return frozenset(operator.name for operator in step.operators if operator.ns > 0)


def is_operator(name: str) -> bool:
    """Return whether `name` is that of an operator, as ``aten::sort``."""
    return "::" in name and ".py(" not in name


def _is_wait(activity: HostActivity) -> bool:
    return not activity.launched and (activity.name in _READS or "Synchronize" in activity.name)


def is_runtime_call(name: str) -> bool:
    """Return whether `name` is that of a call of the device's runtime or driver."""
    return name.startswith(
        ("cuda", "hip", "cuMem", "cuLaunch", "cuModule", "cuLibrary", "cuCtx", "cuStream", "cuEvent")
    )


def calls_text(activities: Iterable[HostActivity]) -> str:
    """Return the longest of `activities` in words: ``train.py(12): augment (31 ms) and aten::sort (2 ms)``.

    Calls from one place in the user's own code count together. Of calls in long gaps, the time in these gaps counts.
    """
    places: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for activity in activities:
        name = call_name(activity)
        places[activity.source or name][name] += activity.long_ns or activity.ns
    largest = sorted(places.items(), key=lambda place: -place[1].total())[:MAX_LISTED_CALLS]
    return join_list([f"{_main_call(place, calls)} ({text(calls.total(), 'ns')})" for place, calls in largest])


def _main_call(place: str, calls: Counter[str]) -> str:
    """Return the call that takes most of the time of a place, or the place if none does."""
    name, ns = calls.most_common(1)[0]
    return name if 2 * ns >= calls.total() else place


def is_own_call(activity: HostActivity) -> bool:
    """Return whether an activity is a call that the user's own code makes outside torch, as ``<built-in function sleep>``."""
    return bool(activity.source) and not activity.name.startswith(
        ("torch/", "nn.Module: ", "<built-in method run_backward")
    )


def call_name(activity: HostActivity) -> str:
    """Return the name of an activity, with the user's own code around it where the trace shows it."""
    name = _BUILT_IN.sub(lambda match: f"{match[2]}.{match[1]}()" if match[2] else f"{match[1]}()", activity.name)
    name = name or "Python between " + (join_list([activity.after, activity.before]) if activity.after else "operators")
    if name in activity.source:
        return activity.source
    return f"{name} in {activity.source}" if activity.source else name


def single_gap(trace: TraceSummary) -> IdleTime | None:
    """Return the Python with a gap that is many times as long as all others together, in the first step.

    In a trace without several steps it may be the program's own work in each pass, if a call of its code is recorded there.
    """
    if trace.missing_share >= MAX_MISSING_SHARE:
        return None  # the events in the gap may have been removed
    python = [part for part in trace.idle if part.cause == "python"]
    longest = max(python, key=lambda part: part.longest_ns, default=None)
    if longest is None or longest.longest_ns < LONG_CALL_NS:
        return None
    total_ns = sum(part.ns for part in python)
    if longest.longest_ns <= FIRST_STEP_FACTOR * (total_ns - longest.longest_ns):
        return None
    if len(trace.working_steps) > 1:
        idle = [step.idle_ns or 0 for step in trace.working_steps]
        return longest if idle[0] == max(idle) else None
    is_named = any(_is_program(activity) and 2 * activity.ns > total_ns for activity in trace.activities)
    return None if is_named else longest


def _is_program(activity: HostActivity) -> bool:
    """Return whether an activity shows what the program does: its own call, a range that it marks, or its data loading."""
    return is_own_call(activity) or (activity.name != "" and activity.phase in ("", "other", "data"))


def _first_excess_ns(trace: TraceSummary) -> int:
    steps = trace.working_steps
    if len(steps) < MIN_COMPARED_STEPS:
        return 0
    times = [step.idle_ns if trace.clock == "device" else step.host_ns for step in steps]
    others = [ns for ns in times[1:] if ns is not None]
    if times[0] is None or not others:
        return 0
    usual_ns = statistics.median(others)
    if len(others) == 1 and steps[0].host_ns <= FIRST_STEP_FACTOR * statistics.median(
        step.host_ns for step in steps[1:]
    ):
        return 0  # the idle time of one other step is not the usual one
    return max(0, round(times[0] - usual_ns)) if times[0] > FIRST_STEP_FACTOR * usual_ns else 0

"""The host's activity during idle time: compilation, allocation, slow first calls, and the calls in which time passes."""

from __future__ import annotations

import re
import sys
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.host_time import Stretches, innermost
from profiler_kit.attribution.result import Attribution, phase_name
from profiler_kit.records.traces import HostActivity
from profiler_kit.traces.intervals import Intervals, distinct_rows, join, pieces, subtract, sum_by, union
from profiler_kit.traces.names import STEP_PREFIX
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask

# Source: torch/_dynamo/utils.py, dynamo_timed; torch/_dynamo/convert_frame.py.
_COMPILING: Final = re.compile(
    r"\(dynamo_timed\)\Z|\Aentire_(frame|backward)_compile\Z|torch/_dynamo/convert_frame\.py\(\d+\): _?compile"
)
FRAME_COMPILATION: Final = re.compile(r"\A_compile\.compile_inner \(dynamo_timed\)\Z|\A_compile\.compile_inner\Z")
_STEP: Final = re.compile(rf"\A{re.escape(STEP_PREFIX)}")
_ALLOCATION: Final = re.compile(r"\A(cuda|hip)(Malloc|Free|HostAlloc|HostRegister|MallocHost|FreeHost|HostMalloc)\w*\Z")
_COPY: Final = re.compile(r"Mem(cpy|set)|Copy")
# A call of the runtime takes microseconds. On an idle device, one that takes a millisecond loads a module or starts a library.
SLOW_CALL_NS: Final = 1_000_000
# A call that allocates or frees takes up to a few milliseconds; the first one creates the context.
SLOW_ALLOCATION_NS: Final = 10_000_000
# The usual time between launches is 5 to 50 us. A gap of a millisecond is other work of the host.
LONG_GAP_NS: Final = 1_000_000
# The longest gaps hold nearly all idle time of a step that waits for something else than launches.
_MAX_GAPS: Final = 2_000
_MAX_ACTIVITIES: Final = 20
_NEAR_EVENTS: Final = 5  # on each side of a gap
_MAX_DEPTH: Final = 200  # levels of calls to search for the user's code

# Python calls of the standard library, of built-in functions and of installed packages are not the user's code. Nor is the code
# that torch.compile writes to its cache, as 2b/c2bbkmidpg7j3xwqwy23xmrthxekyyxnqwx7xywajrj42iac7be6.py.
_LIBRARY: Final = re.compile(
    r"\A(<|torch\w*/|functorch/|numpy/|PIL/|cv2/|transformers/|accelerate/|(pytorch_)?lightning/|deepspeed/|nn\.Module: )|"
    r"(site|dist)-packages/|lib/python3|(\A|/)[a-z0-9]{2}/c[a-z0-9]{50,}\.py\("
)


class HostCalls(NamedTuple):
    """Calls on one thread that explain idle time, as intervals: compilation, allocation, and slow first calls."""

    compilation: Intervals
    allocation: Intervals
    slow: Intervals


def host_calls(attribution: Attribution, low: int, high: int, waits: Ids) -> HostCalls:
    """Return the calls among the host positions `low` to `high`, which are those of one thread.

    `waits`: the positions of waiting calls, which do not count as slow.
    """
    table, host = attribution.table, attribution.host
    rows = host.rows[low:high]
    start, end = host.start_ns[low:high], host.end_ns[low:high]
    is_call = table.kind[rows] == Kind.RUNTIME
    is_allocation = is_call & table.named(rows, _ALLOCATION)
    # Before the first launch, the program has freed nothing yet: the call starts the library.
    starts_library = start < _first_launch_ns(attribution)
    is_slow = is_call & (end - start >= np.where(is_allocation & ~starts_library, SLOW_ALLOCATION_NS, SLOW_CALL_NS))
    is_slow &= ~table.named(rows, _COPY)
    is_slow &= is_allocation | ~np.isin(np.arange(low, high), waits)
    compiling = ~is_call & table.named(rows, _COMPILING)
    return HostCalls(
        *(union(start[mask], end[mask], ordered=True) for mask in (compiling, is_allocation & ~is_slow, is_slow))
    )


def _first_launch_ns(attribution: Attribution) -> int:
    """Return the start of the first launch; the earliest time without launches."""
    launch = attribution.device.launch[attribution.device.launch != NONE]
    return int(attribution.host.start_ns[launch].min()) if len(launch) else np.iinfo(np.int64).min


def compilation_intervals(attribution: Attribution) -> Intervals:
    """Return the time in which any thread compiles code for torch.compile."""
    table, host = attribution.table, attribution.host
    mask = (table.kind[host.rows] != Kind.RUNTIME) & table.named(host.rows, _COMPILING)
    return union(host.start_ns[mask], host.end_ns[mask])


def compiled_frames(attribution: Attribution) -> int:
    """Return the number of frames that torch.compile compiled, recompilations included."""
    return int(attribution.table.named(attribution.host.rows, FRAME_COMPILATION).sum())


def idle_activities(
    attribution: Attribution, start: Ints, end: Ints, thread: Ids, host_ns: Ints
) -> tuple[HostActivity, ...]:
    """Return the host's activity in the longest of the gaps from `start` to `end`, by the innermost call, longest first.

    Compilation is left out. `thread`: the thread that launched the work that ended each gap, or NONE. Where it did nothing, the
    main thread counts. `host_ns`: the part of each gap that the host caused.
    """
    longest = np.sort(np.argsort(start - end, kind="stable")[:_MAX_GAPS])
    start, end, thread = start[longest], end[longest], thread[longest]
    is_long = end - start >= LONG_GAP_NS
    launched = 2 * host_ns[longest] < end - start
    main = attribution.main_thread
    parts: list[Stretches] = []
    covered = compilation_intervals(attribution)
    for number in dict.fromkeys((*np.unique(thread).tolist(), main)):
        own = (thread == number) | (number == main)
        gaps = subtract(union(start[own], end[own]), covered)
        own_stretches = _stretches(attribution, number, gaps)
        index, piece_start, piece_end = pieces(gaps, own_stretches.start, own_stretches.end)
        stretches = Stretches(piece_start, piece_end, own_stretches.event[index])
        parts.append(stretches)
        covered = join(covered, union(stretches.start, stretches.end))
    bare = subtract(union(start, end), covered)
    parts.append(Stretches(bare.start, bare.end, np.full(len(bare.start), NONE, np.int32)))
    everything = Stretches(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    gap = np.searchsorted(start, everything.start, side="right") - 1
    return _activities(attribution, everything, is_long[gap], launched[gap])


def launching_threads(attribution: Attribution, work: Ids) -> Ids:
    """Return the thread that launched each of the device events `work`, or NONE."""
    return np.append(attribution.host.thread, np.int32(NONE))[attribution.device.launch[work]].astype(np.int32)


def _stretches(attribution: Attribution, thread: int, gaps: Intervals) -> Stretches:
    """Return the innermost events of `thread` that overlap any of `gaps`, as stretches that do not overlap."""
    host = attribution.host
    low, high = np.searchsorted(host.thread, np.array((thread, thread + 1), host.thread.dtype)).tolist()
    start, end = host.start_ns[low:high], host.end_ns[low:high]
    overlapping = np.searchsorted(gaps.end, start, side="right") < np.searchsorted(gaps.start, end, side="left")
    positions = (np.flatnonzero(overlapping) + low).astype(np.int32)
    return innermost(host.start_ns[positions], host.end_ns[positions], positions, host.parent[positions])


def _activities(attribution: Attribution, pieces: Stretches, is_long: Mask, launched: Mask) -> tuple[HostActivity, ...]:
    """Return the sums of `pieces` by name, phase and `launched`."""
    table, host = attribution.table, attribution.host
    if not len(pieces.event):
        return ()
    ns = pieces.end - pieces.start
    name_of, phase_of = np.full((2, len(ns)), NONE, np.int32)
    named = np.flatnonzero(pieces.event != NONE)
    named = named[~table.named(host.rows[pieces.event[named]], _STEP)]
    name_of[named] = table.name[host.rows[pieces.event[named]]]
    phase_of[named] = host.phase[pieces.event[named]]
    phase_numbers = int(phase_of.max()) - NONE + 1
    key = ((name_of.astype(np.int64) - NONE) * phase_numbers + phase_of - NONE) * 2 + launched
    groups, first, group = np.unique(key, return_index=True, return_inverse=True)
    total = sum_by(group, ns, len(groups))
    long_ns = sum_by(group, np.where(is_long, ns, 0), len(groups))
    activities, neighbors = [], _Neighbors.of(attribution)
    for number in np.argsort(-total, kind="stable")[:_MAX_ACTIVITIES].tolist():
        members = np.flatnonzero(group == number)
        events, index = np.unique(pieces.event[members], return_inverse=True)
        by_event = sum_by(index.reshape(-1), ns[members], len(events))
        longest = int(np.argmax(by_event))
        piece = first[number]
        name, phase, event = int(name_of[piece]), int(phase_of[piece]), int(events[longest])
        module = int(host.module[event]) if event != NONE else NONE
        after, before = neighbors.names(pieces.start[members], pieces.end[members]) if name == NONE else ("", "")
        activities.append(
            HostActivity(
                name=table.names[name] if name != NONE else "",
                phase=phase_name(phase),
                source=user_call(attribution, event),
                module=attribution.modules[module].path if module != NONE else "",
                calls=len(events),
                ns=int(total[number]),
                longest_ns=int(by_event[longest]),
                long_ns=int(long_ns[number]),
                launched=bool(launched[piece]),
                after=after,
                before=before,
            )
        )
    return tuple(activities)


class _Neighbors(NamedTuple):
    """The outermost events of the main thread, without marks of steps, by start.

    `name` and `capped_ns` have a last entry, NONE, for places outside. `capped_ns`: the times, equal for all that take longer
    than most events.
    """

    start_ns: Ints
    end_ns: Ints
    name: Ids
    capped_ns: Ints
    texts: tuple[str, ...]

    @classmethod
    def of(cls, attribution: Attribution) -> _Neighbors:
        """Return those of a trace."""
        table, host = attribution.table, attribution.host
        is_mark = table.named(host.rows, _STEP)
        is_outermost = (host.parent == NONE) | np.append(is_mark, False)[host.parent]
        rows = np.flatnonzero(is_outermost & ~is_mark & (host.thread == attribution.main_thread))
        start_ns, end_ns, name = host.start_ns[rows], host.end_ns[rows], table.name[host.rows[rows]]
        long_ns = int(np.median(end_ns - start_ns)) + 1 if len(rows) else 0
        capped_ns = np.append(np.minimum(end_ns - start_ns, long_ns), NONE)
        return cls(start_ns, end_ns, np.append(name, np.int32(NONE)), capped_ns, table.names)

    def names(self, start_ns: Ints, end_ns: Ints) -> tuple[str, str]:
        """Return the names of events before and after the intervals, for the pair with most of their time.

        Of the nearest events on each side, the first that takes longer than most events counts, or else the longest: views and
        new tensors say little, and a long event farther away is not where the time passes.
        """
        last = np.searchsorted(self.end_ns, start_ns, side="right") - 1
        names = [self._nearest(last, -1), self._nearest(np.searchsorted(self.start_ns, end_ns), 1)]
        pairs, pair = distinct_rows(names)
        longest = pairs[np.argmax(sum_by(pair, end_ns - start_ns, len(pairs)))]
        after, before = (self.texts[i] if i != NONE else "" for i in longest.tolist())
        return after, before

    def _nearest(self, at: Ints, direction: int) -> Ids:
        """Return the names of the first long events from `at` on in a direction; NONE outside."""
        near = at[:, None] + direction * np.arange(_NEAR_EVENTS)
        near = np.where((near >= 0) & (near < len(self.start_ns)), near, NONE)
        first_long = self.capped_ns[near].argmax(axis=1)  # the first of equal ones
        nearest: Ids = self.name[near[np.arange(len(at)), first_long]]
        return nearest


def user_call(attribution: Attribution, event: int) -> str:
    """Return the innermost Python call of the user's own code around `event`: ``train.py(12): augment``; "" for none."""
    if event == NONE:
        return ""
    table, host = attribution.table, attribution.host
    (call,) = user_calls(attribution, np.array([event], np.int32)).tolist()
    return table.names[int(table.name[host.rows[call]])] if call != NONE else ""


def user_calls(attribution: Attribution, events: Ids) -> Ids:
    """Return the innermost Python call of the user's own code around each event, or NONE."""
    table, host = attribution.table, attribution.host
    is_user = np.zeros(len(table.names), np.bool_)
    is_checked = is_user.copy()
    result = host.python[events]
    pending = np.flatnonzero(result != NONE)
    for _ in range(_MAX_DEPTH):
        names = table.name[host.rows[result[pending]]]
        new = np.unique(names[~is_checked[names]])
        is_user[new] = [is_user_code(table.names[i]) for i in new.tolist()]
        is_checked[new] = True
        pending = pending[~is_user[names]]
        result[pending] = host.enclosing(host.python, result[pending])
        pending = pending[result[pending] != NONE]
        if not len(pending):
            break
    result[pending] = NONE
    return result


def is_user_code(name: str) -> bool:
    """Return whether a Python call of this name is the user's own code, not a library's."""
    if ".py(" not in name or _LIBRARY.search(name):
        return False
    return name.split(".py(")[0].split("/")[0] not in sys.stdlib_module_names

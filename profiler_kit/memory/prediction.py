"""Figures from a memory log: the peak by category, the timeline, the tensors that each module saves for backward.

For a device, the log is replayed through a model of its allocator, with library workspace at one bound of its interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from profiler_kit.devices.device import Device
from profiler_kit.memory.allocator import Block, CachingAllocator
from profiler_kit.memory.log import CATEGORIES, Lifetime, MemoryLog, WorkspaceUse
from profiler_kit.records.counts import (
    DeviceMemory,
    LibraryWorkspace,
    MemoryCategories,
    MemoryEstimate,
    MemoryLine,
    MemoryPoint,
    ModuleMemory,
    Phase,
)

MAX_POINTS: Final = 64
MAX_MODULES: Final = 8  # whose part of the timeline is kept
# What no rule of workspace covers, such as tables of offsets and handles of other libraries: the peaks of 47 measured networks
# whose workspace is known differed from the prediction by up to 0.62 %.
_RESIDUAL_SHARE: Final = 0.005
_RESIDUAL_BYTES: Final = 256 << 10
_MAX_UNCERTAIN: Final = 5

Bound = Literal["low", "likely", "high"]


def predict(log: MemoryLog, device: Device) -> MemoryEstimate:
    """The memory of the last step of `log`: of tensors only, and on `device`."""
    levels = log.live_bytes()
    start = log.steps[-1]
    peak = max(range(start, len(levels)), key=lambda i: (levels[i], -i))
    last_allocated = log.events[peak - 1][1] if peak > start else None
    where = _where(last_allocated)
    points = [(mark.position, mark.name, levels[mark.position]) for mark in log.marks]
    points.append((peak, where, levels[peak]))
    points.sort(key=lambda point: point[0])
    loss_end = log.position_of("after loss")
    live = log.live_at(loss_end) if loss_end is not None else ()
    saved = [lifetime for lifetime in live if lifetime.category is None and lifetime.savers is not None]
    forward_end = loss_end if loss_end is not None else log.position_of("after forward")
    return MemoryEstimate(
        peak_bytes=levels[peak],
        peak_at=where,
        categories=_categories(log.live_at(peak)),
        timeline=tuple(MemoryPoint(at=name, bytes=level) for _, name, level in points),
        peak_phase=last_allocated.phase if last_allocated is not None else None,
        peak_path=last_allocated.path if last_allocated is not None else None,
        peak_op=last_allocated.op if last_allocated is not None else None,
        saved_bytes=sum(lifetime.nbytes for lifetime in saved),
        after_forward_bytes=levels[forward_end] if forward_end is not None else None,
        end_bytes=levels[-1],
        modules=_modules(saved),
        device=predict_on_device(log, device, levels) if device.is_cuda else None,
        notes=tuple(log.notes),
    )


def _where(lifetime: Lifetime | None) -> str:
    if lifetime is None:
        return "before forward"
    return " ".join(word for word in (lifetime.phase, lifetime.path, lifetime.op) if word)


def _categories(live: Iterable[Lifetime], workspace: int | None = None) -> MemoryCategories:
    sums = dict.fromkeys(CATEGORIES, 0)
    for lifetime in live:
        sums[lifetime.kind()] += lifetime.nbytes
    return MemoryCategories(workspace=workspace, **sums)


def _modules(saved: Iterable[Lifetime]) -> tuple[ModuleMemory, ...]:
    created: Counter[str] = Counter()
    saved_first: Counter[str] = Counter()
    referenced: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for lifetime in saved:
        savers = lifetime.savers or [lifetime.path]  # a checkpoint's input counts for the module that made it
        created[lifetime.path] += lifetime.nbytes
        saved_first[savers[0]] += lifetime.nbytes
        for path in dict.fromkeys(savers):
            referenced[path] += lifetime.nbytes
        common = _common_parts([lifetime.path, *savers])
        for end in range(1, len(common) + 1):
            inside[".".join(common[:end])] += lifetime.nbytes
    return tuple(
        ModuleMemory(
            path=path,
            created_bytes=created[path],
            saved_bytes=saved_first[path],
            held_bytes=referenced[path],
            inside_bytes=inside[path],
        )
        for path in dict.fromkeys((*created, *referenced, *inside))
    )


def _common_parts(paths: Sequence[str]) -> list[str]:
    """The path, split at dots, of the innermost module that contains all of `paths`."""
    first, *others = (path.split(".") if path else [] for path in paths)
    length = min(len(first), *(len(other) for other in others))
    return first[: next((i for i in range(length) if any(other[i] != first[i] for other in others)), length)]


def predict_on_device(log: MemoryLog, device: Device, levels: list[int] | None = None) -> DeviceMemory:
    """The memory of the last step of `log` on `device`. `levels`: ``log.live_bytes()``, if it is known already."""
    levels = levels or log.live_bytes()
    likely = replay(log)
    is_uncertain = any(use.workspace.low != use.workspace.high for use in log.uses)
    low, high = (replay(log, "low"), replay(log, "high")) if is_uncertain else (likely, likely)
    phase, path, op = _peak_of(log, likely)
    workspace = likely.handle_bytes
    if likely.peak_use is not None and likely.peak_use.handle is None:
        workspace += likely.peak_use.workspace.likely
    categories = _categories(log.live_at(likely.peak_position), workspace=workspace)
    forward_end = log.position_of("after loss") or log.position_of("after forward") or 0
    handle_bytes = sum(
        use.workspace.likely for use in log.uses if use.handle is not None and use.position <= forward_end
    )
    points = timeline(log, levels)
    positions = [position for _, position in points]
    residual = round(_RESIDUAL_SHARE * likely.allocated_bytes) + _RESIDUAL_BYTES
    return DeviceMemory(
        profile=device.architecture.name,
        card=device.label,
        allocated_bytes=likely.allocated_bytes,
        allocated_low_bytes=max(min(low.allocated_bytes, likely.allocated_bytes) - residual, 0),
        allocated_high_bytes=max(high.allocated_bytes, likely.allocated_bytes) + residual,
        reserved_bytes=likely.reserved_bytes,
        reserved_high_bytes=max(high.reserved_bytes, likely.reserved_bytes),
        categories=categories,
        rounding_bytes=likely.allocated_bytes - levels[likely.peak_position] - workspace,
        peak_phase=phase,
        peak_path=path,
        peak_op=op,
        after_forward_bytes=levels[forward_end] + handle_bytes,
        context_bytes=device.architecture.context.value,
        timeline=tuple(MemoryPoint(at=at, bytes=levels[position]) for at, position in points),
        by_category=tuple(sorted(_lines(log, positions, Lifetime.kind), key=lambda line: CATEGORIES.index(line.name))),
        by_module=_largest(_lines(log, positions, lambda lifetime: lifetime.path)),
        uncertain=_uncertain(log, levels, low),
        kept_bytes=likely.handle_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The last step's peak, and the bytes reserved at its end.

    `peak_position`: the number of events before the peak. `peak_use`: the workspace that causes the peak; None if an
    allocation of a storage does. `handle_bytes`: persistent workspace of library handles at the peak.
    """

    allocated_bytes: int
    peak_position: int
    peak_use: WorkspaceUse | None
    handle_bytes: int
    reserved_bytes: int


def replay(log: MemoryLog, bound: Bound = "likely") -> Replay:
    """Replay `log` through a new allocator, with every workspace at `bound`."""
    allocator = CachingAllocator()
    allocate, free = allocator.allocate, allocator.free
    blocks: dict[int, Block] = {}
    handle_bytes = 0
    # of the current step: bytes, position, use, handle bytes
    peak: tuple[int, int, WorkspaceUse | None, int] = (0, 0, None, 0)
    position = 0
    for stop, is_start, use in _stops(log):
        peak_bytes = peak[0]
        for change, lifetime in log.events[position:stop]:
            position += 1
            if change > 0:
                blocks[id(lifetime)] = allocate(change)
                if allocator.allocated > peak_bytes:
                    peak_bytes = allocator.allocated
                    peak = (peak_bytes, position, None, handle_bytes)
            else:
                free(blocks.pop(id(lifetime)))
        if is_start:
            peak = (allocator.allocated, position, None, handle_bytes)
        nbytes: int = 0 if use is None else getattr(use.workspace, bound)
        if use is not None and nbytes > 0:
            block = allocate(nbytes)
            if use.handle is not None:
                handle_bytes += nbytes
            if allocator.allocated > peak[0]:
                peak = (allocator.allocated, position, use, handle_bytes)
            if use.handle is None:
                free(block)
    peak_bytes, peak_position, peak_use, peak_handle_bytes = peak
    return Replay(
        allocated_bytes=peak_bytes,
        peak_position=peak_position,
        peak_use=peak_use,
        handle_bytes=peak_handle_bytes,
        reserved_bytes=allocator.reserved,
    )


def _stops(log: MemoryLog) -> list[tuple[int, bool, WorkspaceUse | None]]:
    """The positions at which a step starts (True) or a workspace is used, in order, and the end of the log."""
    starts: list[tuple[int, bool, WorkspaceUse | None]] = [(position, True, None) for position in log.steps]
    uses = [(use.position, False, use) for use in log.uses]
    ordered = sorted(
        [*starts, *uses], key=lambda stop: stop[0]
    )  # stable: a step starts before the uses at its position
    return [*ordered, (len(log.events), False, None)]


def timeline(log: MemoryLog, levels: list[int]) -> list[tuple[str, int]]:
    """Where the live bytes of each run of allocations in one phase and module are largest, in order; at most `MAX_POINTS`.

    Each place has its name and the number of events before it.
    """
    peaks: list[tuple[str, str, int]] = []  # phase, path, events before
    start = log.steps[-1]
    for position in range(start, len(log.events)):
        change, lifetime = log.events[position]
        if change <= 0:
            continue
        if peaks and peaks[-1][:2] == (lifetime.phase, lifetime.path):
            after = max(peaks[-1][2], position + 1, key=levels.__getitem__)
            peaks[-1] = (lifetime.phase, lifetime.path, after)
        else:
            peaks.append((lifetime.phase, lifetime.path, position + 1))
    group_size = -(-len(peaks) // MAX_POINTS)
    points = []
    for first in range(0, len(peaks), max(group_size, 1)):
        phase, path, after = max(peaks[first : first + group_size], key=lambda peak: levels[peak[2]])
        points.append((f"{phase} {path}".strip(), after))
    return points


def _lines(log: MemoryLog, positions: Sequence[int], name_of: Callable[[Lifetime], str]) -> tuple[MemoryLine, ...]:
    """The live bytes after each of the `positions`, in ascending order, by the name of their storages."""
    live: Counter[str] = Counter()
    samples: list[Counter[str]] = []
    for first, position in pairwise((0, *positions)):
        for change, lifetime in log.events[first:position]:
            live[name_of(lifetime)] += change
        samples.append(+live)  # without those that are zero again
    names = dict.fromkeys(name for sample in samples for name in sample)
    return tuple(MemoryLine(name=name, bytes=tuple(sample[name] for sample in samples)) for name in names)


def _largest(lines: Sequence[MemoryLine]) -> tuple[MemoryLine, ...]:
    return tuple(sorted(lines, key=lambda line: -max(line.bytes))[:MAX_MODULES])


def _peak_of(log: MemoryLog, result: Replay) -> tuple[Phase, str, str]:
    """(phase, path, op) of the peak."""
    if result.peak_use is not None:
        return result.peak_use.phase, result.peak_use.path, result.peak_use.op
    if result.peak_position > log.steps[-1]:
        lifetime = log.events[result.peak_position - 1][1]
        return lifetime.phase, lifetime.path, lifetime.op
    return "other", "", ""


def _uncertain(log: MemoryLog, levels: list[int], low: Replay) -> tuple[LibraryWorkspace, ...]:
    """Workspace uses that can raise the peak above its lower bound, largest first; once per op, module and phase."""
    highest: dict[tuple[str, str, Phase], tuple[int, WorkspaceUse]] = {}
    handle_bytes = 0
    for use in log.uses:
        if use.handle is not None:
            handle_bytes += use.workspace.likely
        elif use.position >= log.steps[-1] and use.workspace.low != use.workspace.high:
            nbytes = levels[use.position] + handle_bytes + use.workspace.high
            key = (use.op, use.path, use.phase)
            if nbytes > low.allocated_bytes and nbytes > highest.get(key, (0, use))[0]:
                highest[key] = (nbytes, use)
    ordered = sorted(highest.values(), key=lambda entry: -entry[0])[:_MAX_UNCERTAIN]
    return tuple(
        LibraryWorkspace(
            op=use.op, path=use.path, phase=use.phase, low_bytes=use.workspace.low, likely_bytes=use.workspace.likely,
            high_bytes=use.workspace.high, source=use.workspace.source,
        )
        for _, use in ordered
    )  # fmt: skip

"""From a log to figures: the peak taken apart, the timeline, what each module keeps for backward.

On a device the log is put through its allocator, with library scratch at one end of its interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.devices.device import Device
from profiler_kit.memory.allocator import Block, CachingAllocator
from profiler_kit.memory.log import CATEGORIES, Life, Log, Use
from profiler_kit.records.counts import (
    DeviceMemory,
    LibraryScratch,
    MemoryCategories,
    MemoryEstimate,
    MemoryPoint,
    ModuleMemory,
    Phase,
)

MOST_POINTS: Final = 64
_MOST_UNCERTAIN: Final = 5

Bound = Literal["low", "likely", "high"]


def predicted(log: Log, device: Device) -> MemoryEstimate:
    """What the last step of `log` holds: in tensors alone, and on `device`."""
    levels = log.levels()
    start = log.steps[-1]
    place = max(range(start, len(levels)), key=lambda i: (levels[i], -i))
    born = log.events[place - 1][1] if place > start else None
    where = _where(born)
    points = [(mark.place, mark.name, levels[mark.place]) for mark in log.marks]
    points.append((place, where, levels[place]))
    points.sort(key=lambda point: point[0])
    kept = log.place_of("after loss")
    living = log.alive(kept) if kept is not None else ()
    saved = [life for life in living if life.category is None and life.savers is not None]
    forward_end = kept if kept is not None else log.place_of("after forward")
    return MemoryEstimate(
        peak_bytes=levels[place],
        peak_at=where,
        categories=_categories(log.alive(place)),
        timeline=tuple(MemoryPoint(at=name, bytes=level) for _, name, level in points),
        peak_phase=born.phase if born is not None else None,
        peak_path=born.path if born is not None else None,
        peak_op=born.op if born is not None else None,
        saved_bytes=sum(life.nbytes for life in saved),
        after_forward_bytes=levels[forward_end] if forward_end is not None else None,
        end_bytes=levels[-1],
        modules=_modules(saved),
        device=on_device(log, device) if device.is_cuda else None,
        notes=tuple(log.notes),
    )


def _where(life: Life | None) -> str:
    if life is None:
        return "before forward"
    return " ".join(word for word in (life.phase, life.path, life.op) if word)


def _categories(alive: Iterable[Life], workspace: int | None = None) -> MemoryCategories:
    sums = dict.fromkeys(CATEGORIES, 0)
    for life in alive:
        sums[life.kind()] += life.nbytes
    return MemoryCategories(workspace=workspace, **sums)


def _modules(saved: Iterable[Life]) -> tuple[ModuleMemory, ...]:
    created: dict[str, int] = {}
    first: dict[str, int] = {}
    held: dict[str, int] = {}
    inside: dict[str, int] = {}
    for life in saved:
        keepers = life.savers or [life.path]  # a checkpoint's input counts for the module that made it
        created[life.path] = created.get(life.path, 0) + life.nbytes
        first[keepers[0]] = first.get(keepers[0], 0) + life.nbytes
        for path in dict.fromkeys(keepers):
            held[path] = held.get(path, 0) + life.nbytes
        common = _common([life.path, *keepers])
        for end in range(1, len(common) + 1):
            path = ".".join(common[:end])
            inside[path] = inside.get(path, 0) + life.nbytes
    return tuple(
        ModuleMemory(
            path=path,
            created_bytes=created.get(path, 0),
            saved_bytes=first.get(path, 0),
            held_bytes=held.get(path, 0),
            inside_bytes=inside.get(path, 0),
        )
        for path in dict.fromkeys((*created, *held, *inside))
    )


def _common(paths: Sequence[str]) -> list[str]:
    """The parts of the path of the innermost module that holds all of `paths`."""
    first, *others = (path.split(".") if path else [] for path in paths)
    length = min(len(first), *(len(other) for other in others))
    return first[: next((i for i in range(length) if any(other[i] != first[i] for other in others)), length)]


def on_device(log: Log, device: Device) -> DeviceMemory:
    """What the last step of `log` needs on `device`."""
    levels = log.levels()
    likely = replay(log)
    is_uncertain = any(use.scratch.low != use.scratch.high for use in log.uses)
    low, high = (replay(log, "low"), replay(log, "high")) if is_uncertain else (likely, likely)
    phase, path, op = _peak_of(log, likely)
    scratch = likely.kept_bytes
    if likely.peak_use is not None and likely.peak_use.keeper is None:
        scratch += likely.peak_use.scratch.likely
    categories = _categories(log.alive(likely.peak_place), workspace=scratch)
    forward_end = log.place_of("after loss") or log.place_of("after forward") or 0
    kept_by_then = sum(use.scratch.likely for use in log.uses if use.keeper is not None and use.place <= forward_end)
    return DeviceMemory(
        profile=device.architecture.name,
        card=device.label,
        allocated_bytes=likely.allocated_bytes,
        allocated_low_bytes=min(low.allocated_bytes, likely.allocated_bytes),
        allocated_high_bytes=max(high.allocated_bytes, likely.allocated_bytes),
        reserved_bytes=likely.reserved_bytes,
        reserved_high_bytes=max(high.reserved_bytes, likely.reserved_bytes),
        categories=categories,
        rounding_bytes=likely.allocated_bytes - levels[likely.peak_place] - scratch,
        peak_phase=phase,
        peak_path=path,
        peak_op=op,
        after_forward_bytes=levels[forward_end] + kept_by_then,
        context_bytes=device.architecture.context.value,
        timeline=timeline(log, levels),
        uncertain=_uncertain(log, levels, low),
        kept_bytes=likely.kept_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The last step's peak and what is held after it.

    `peak_place`: the number of events before the peak; `peak_use`: the scratch that made it, None where a storage's birth
    did; `kept_bytes`: what libraries hold for good at the peak.
    """

    allocated_bytes: int
    peak_place: int
    peak_use: Use | None
    kept_bytes: int
    reserved_bytes: int


def replay(log: Log, bound: Bound = "likely") -> Replay:
    """Runs the whole `log` through a new allocator, every scratch at `bound`."""
    allocator = CachingAllocator()
    blocks: dict[int, Block] = {}
    starts = set(log.steps)
    uses = iter(log.uses)
    use = next(uses, None)
    kept = 0
    peaks: list[tuple[int, int, Use | None, int]] = []  # of each step: bytes, place, use, kept then
    for place in range(len(log.events) + 1):
        if place in starts:
            peaks.append((allocator.allocated, place, None, kept))
        while use is not None and use.place == place:
            nbytes: int = getattr(use.scratch, bound)
            if nbytes > 0:
                block = allocator.allocate(nbytes)
                if use.keeper is not None:
                    kept += nbytes
                if peaks and allocator.allocated > peaks[-1][0]:
                    peaks[-1] = (allocator.allocated, place, use, kept)
                if use.keeper is None:
                    allocator.free(block)
            use = next(uses, None)
        if place == len(log.events):
            break
        change, life = log.events[place]
        if change > 0:
            blocks[id(life)] = allocator.allocate(change)
            if peaks and allocator.allocated > peaks[-1][0]:
                peaks[-1] = (allocator.allocated, place + 1, None, kept)
        else:
            allocator.free(blocks.pop(id(life)))
    allocated, at, made_by, kept_then = peaks[-1]
    return Replay(
        allocated_bytes=allocated,
        peak_place=at,
        peak_use=made_by,
        kept_bytes=kept_then,
        reserved_bytes=allocator.reserved,
    )


def timeline(log: Log, levels: list[int]) -> tuple[MemoryPoint, ...]:
    """The most bytes held in each stretch of births in one phase and module, in order; neighbours are merged if many."""
    peaks: list[tuple[str, str, int]] = []  # phase, path, bytes
    start = log.steps[-1]
    for place in range(start, len(log.events)):
        change, life = log.events[place]
        if change <= 0:
            continue
        level = levels[place + 1]
        if peaks and peaks[-1][:2] == (life.phase, life.path):
            peaks[-1] = (life.phase, life.path, max(peaks[-1][2], level))
        else:
            peaks.append((life.phase, life.path, level))
    at_once = -(-len(peaks) // MOST_POINTS)
    points = []
    for first in range(0, len(peaks), max(at_once, 1)):
        phase, path, level = max(peaks[first : first + at_once], key=lambda peak: peak[2])
        points.append(MemoryPoint(at=f"{phase} {path}".strip(), bytes=level))
    return tuple(points)


def _peak_of(log: Log, found: Replay) -> tuple[Phase, str, str]:
    if found.peak_use is not None:
        return found.peak_use.phase, found.peak_use.path, found.peak_use.op
    if found.peak_place > log.steps[-1]:
        born = log.events[found.peak_place - 1][1]
        return born.phase, born.path, born.op
    return "other", "", ""


def _uncertain(log: Log, levels: list[int], low: Replay) -> tuple[LibraryScratch, ...]:
    """The uses that may lift the peak above its lower bound, those that lift it most first; a call's like counts once."""
    reach: dict[tuple[str, str, Phase], tuple[int, Use]] = {}
    kept = 0
    for use in log.uses:
        if use.keeper is not None:
            kept += use.scratch.likely
        elif use.place >= log.steps[-1] and use.scratch.low != use.scratch.high:
            top = levels[use.place] + kept + use.scratch.high
            key = (use.op, use.path, use.phase)
            if top > low.allocated_bytes and top > reach.get(key, (0, use))[0]:
                reach[key] = (top, use)
    ordered = sorted(reach.values(), key=lambda found: -found[0])[:_MOST_UNCERTAIN]
    return tuple(
        LibraryScratch(
            op=use.op, path=use.path, phase=use.phase, low_bytes=use.scratch.low, likely_bytes=use.scratch.likely,
            high_bytes=use.scratch.high, source=use.scratch.source,
        )
        for _, use in ordered
    )  # fmt: skip

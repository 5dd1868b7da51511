"""From a log to figures: the peak taken apart, the timeline, what each module keeps for backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.log import CATEGORIES, Life, Log, Use
from profiler_kit.memory.replay import Replay, replay
from profiler_kit.memory.timeline import timeline
from profiler_kit.records.counts import (
    DeviceMemory,
    LibraryScratch,
    MemoryCategories,
    MemoryEstimate,
    MemoryPoint,
    ModuleMemory,
    Phase,
)

_MOST_UNCERTAIN: Final = 5


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
    saved = [life for life in log.alive(kept) if _is_saved(life)] if kept is not None else []
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


def _is_saved(life: Life) -> bool:
    return life.category is None and life.savers is not None


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
    low, high = (replay(log, "low"), replay(log, "high")) if _is_uncertain(log.uses) else (likely, likely)
    phase, path, op = _peak_of(log, likely)
    scratch = likely.kept_bytes
    if likely.peak_use is not None and likely.peak_use.keeper is None:
        scratch += likely.peak_use.scratch.likely
    categories = _categories(log.alive(likely.peak_place), workspace=scratch)
    forward_end = log.place_of("after loss") or log.place_of("after forward") or 0
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
        after_forward_bytes=levels[forward_end] + _kept_by(log, forward_end),
        context_bytes=device.architecture.context.value,
        timeline=timeline(log, levels),
        uncertain=_uncertain(log, levels, low),
        kept_bytes=likely.kept_bytes,
    )


def _is_uncertain(uses: Iterable[Use]) -> bool:
    return any(use.scratch.low != use.scratch.high for use in uses)


def _kept_by(log: Log, place: int) -> int:
    return sum(use.scratch.likely for use in log.uses if use.keeper is not None and use.place <= place)


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

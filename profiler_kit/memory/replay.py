"""A log put through the allocator: what is allocated and reserved where, with library scratch at one end of its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler_kit.memory.allocator import Block, CachingAllocator
from profiler_kit.memory.log import Log, Use

Bound = Literal["low", "likely", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The last step's peak and what is held after it.

    `peak_place`: the number of events before the peak; `peak_use`: the scratch that made it, None where a storage's birth
    did; `kept_bytes`: what libraries hold for good at the peak. `first_step_bytes`: the first step's peak.
    """

    allocated_bytes: int
    peak_place: int
    peak_use: Use | None
    kept_bytes: int
    reserved_bytes: int
    first_step_bytes: int


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
        first_step_bytes=peaks[0][0],
    )

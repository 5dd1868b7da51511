"""PyTorch's CUDA caching allocator, replayed: what is allocated and what is reserved for a sequence of requests.

Default settings, one stream, never out of memory. Sizes are rounded to 512 bytes; blocks of at most 1 MiB are cut from
segments of 2 MiB; larger ones from segments of 20 MiB, or of their own size in steps of 2 MiB from 10 MiB on. The best
fit among free blocks is taken and split where enough remains; freed neighbours merge; segments are never given back.

Source: c10/cuda/CUDACachingAllocator.cpp (``get_free_block``, ``alloc_block``, ``should_split``, ``free_block``) and the
constants of c10/core/AllocatorConfig.h.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final

ROUNDING: Final = 512  # kMinBlockSize
SMALL_MOST: Final = 1 << 20  # kSmallSize: the largest block of the small pool, and the smallest rest of a large one
SMALL_SEGMENT: Final = 2 << 20  # kSmallBuffer
LARGE_SEGMENT: Final = 20 << 20  # kLargeBuffer
LARGE_FROM: Final = 10 << 20  # kMinLargeAlloc: from here on a segment of its own
SEGMENT_ROUNDING: Final = 2 << 20  # kRoundLarge


def rounded(nbytes: int) -> int:
    """The size of the block that a request for `nbytes` asks for."""
    return max(ROUNDING, -(-nbytes // ROUNDING) * ROUNDING)


def segment_size(size: int) -> int:
    """The size of the segment that is reserved when no free block holds `size`, a rounded size."""
    if size <= SMALL_MOST:
        return SMALL_SEGMENT
    if size < LARGE_FROM:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment; its neighbours are those of the same segment."""

    size: int
    address: int
    is_small: bool
    requested: int = 0
    is_free: bool = True
    before: Block | None = None
    after: Block | None = None


@dataclass(slots=True, eq=False)
class CachingAllocator:
    """Bytes allocated (in blocks), requested and reserved so far."""

    allocated: int = 0
    requested: int = 0
    reserved: int = 0
    _free_small: list[tuple[int, int, Block]] = field(default_factory=list)
    _free_large: list[tuple[int, int, Block]] = field(default_factory=list)
    _next_address: int = 0

    def allocate(self, nbytes: int) -> Block:
        """A block for `nbytes`, which are more than none."""
        size = rounded(nbytes)
        is_small = size <= SMALL_MOST
        free = self._free_small if is_small else self._free_large
        place = bisect_left(free, (size, -1))
        block = free.pop(place)[2] if place < len(free) else self._segment(size, is_small)
        rest = block.size - size
        if rest >= ROUNDING if is_small else rest > SMALL_MOST:
            self._split(block, size)
        block.is_free = False
        block.requested = nbytes
        self.allocated += block.size
        self.requested += nbytes
        return block

    def free(self, block: Block) -> None:
        """Gives `block` back; it merges with free neighbours."""
        self.allocated -= block.size
        self.requested -= block.requested
        block.is_free = True
        block.requested = 0
        before, after = block.before, block.after
        if before is not None and before.is_free:
            self._take(before)
            before.size += block.size
            self._join(before, after)
            block = before
        if after is not None and after.is_free:
            self._take(after)
            block.size += after.size
            self._join(block, after.after)
        insort(self._pool(block), (block.size, block.address, block))

    def _segment(self, size: int, is_small: bool) -> Block:
        block = Block(segment_size(size), self._next_address, is_small)
        self._next_address += block.size
        self.reserved += block.size
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, block.address + size, block.is_small)
        after = block.after
        self._join(block, rest)
        self._join(rest, after)
        block.size = size
        insort(self._pool(rest), (rest.size, rest.address, rest))

    def _join(self, block: Block, after: Block | None) -> None:
        block.after = after
        if after is not None:
            after.before = block

    def _pool(self, block: Block) -> list[tuple[int, int, Block]]:
        return self._free_small if block.is_small else self._free_large

    def _take(self, block: Block) -> None:
        pool = self._pool(block)
        pool.pop(bisect_left(pool, (block.size, block.address)))

"""A model of PyTorch's CUDA caching allocator: bytes allocated and reserved for a sequence of requests.

Default settings, one stream, unlimited memory. Sizes are rounded up to 512 bytes. Blocks of at most 1 MiB come from segments
of 2 MiB. Larger blocks come from segments of 20 MiB; from 10 MiB on, a segment has the size of the block in steps of 2 MiB.
The allocator takes the free block that fits best and splits it if enough remains. Free neighbors merge. Segments are never
released.

Source: c10/cuda/CUDACachingAllocator.cpp (``get_free_block``, ``alloc_block``, ``should_split``, ``free_block``) and the
constants of c10/core/AllocatorConfig.h.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final

ROUNDING: Final = 512  # kMinBlockSize
MAX_SMALL_BLOCK: Final = 1 << 20  # kSmallSize: largest block of the small pool, smallest remainder of a large one
SMALL_SEGMENT: Final = 2 << 20  # kSmallBuffer
LARGE_SEGMENT: Final = 20 << 20  # kLargeBuffer
MIN_OWN_SEGMENT: Final = 10 << 20  # kMinLargeAlloc: such a block has its own segment
SEGMENT_ROUNDING: Final = 2 << 20  # kRoundLarge


def rounded(nbytes: int) -> int:
    """The block size for a request of `nbytes`."""
    return max(ROUNDING, -(-nbytes // ROUNDING) * ROUNDING)


def segment_size(size: int) -> int:
    """The size of a new segment for a block of `size`, a rounded size."""
    if size <= MAX_SMALL_BLOCK:
        return SMALL_SEGMENT
    if size < MIN_OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment. `before` and `after` are its neighbors in the same segment."""

    size: int
    address: int
    is_small: bool
    requested: int = 0
    is_free: bool = True
    before: Block | None = None
    after: Block | None = None


@dataclass(slots=True, eq=False)
class CachingAllocator:
    """The allocator's state: bytes allocated (in blocks), requested and reserved."""

    allocated: int = 0
    requested: int = 0
    reserved: int = 0
    _free_small: list[tuple[int, int, Block]] = field(default_factory=list)
    _free_large: list[tuple[int, int, Block]] = field(default_factory=list)
    _next_address: int = 0

    def allocate(self, nbytes: int) -> Block:
        """Allocate a block for `nbytes` > 0."""
        size = rounded(nbytes)
        is_small = size <= MAX_SMALL_BLOCK
        free = self._free_small if is_small else self._free_large
        index = bisect_left(free, (size, -1))
        block = free.pop(index)[2] if index < len(free) else self._segment(size, is_small)
        remaining = block.size - size
        if remaining >= ROUNDING if is_small else remaining > MAX_SMALL_BLOCK:
            self._split(block, size)
        block.is_free = False
        block.requested = nbytes
        self.allocated += block.size
        self.requested += nbytes
        return block

    def free(self, block: Block) -> None:
        """Free `block` and merge it with free neighbors."""
        self.allocated -= block.size
        self.requested -= block.requested
        block.is_free = True
        block.requested = 0
        before, after = block.before, block.after
        if before is not None and before.is_free:
            self._remove_from_pool(before)
            before.size += block.size
            self._join(before, after)
            block = before
        if after is not None and after.is_free:
            self._remove_from_pool(after)
            block.size += after.size
            self._join(block, after.after)
        insort(self._pool(block), (block.size, block.address, block))

    def _segment(self, size: int, is_small: bool) -> Block:
        block = Block(segment_size(size), self._next_address, is_small)
        self._next_address += block.size
        self.reserved += block.size
        return block

    def _split(self, block: Block, size: int) -> None:
        remainder = Block(block.size - size, block.address + size, block.is_small)
        after = block.after
        self._join(block, remainder)
        self._join(remainder, after)
        block.size = size
        insort(self._pool(remainder), (remainder.size, remainder.address, remainder))

    def _join(self, block: Block, after: Block | None) -> None:
        block.after = after
        if after is not None:
            after.before = block

    def _pool(self, block: Block) -> list[tuple[int, int, Block]]:
        return self._free_small if block.is_small else self._free_large

    def _remove_from_pool(self, block: Block) -> None:
        pool = self._pool(block)
        pool.pop(bisect_left(pool, (block.size, block.address)))

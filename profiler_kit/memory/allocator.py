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


class Block:
    """A part of a segment. `before` and `after` are its neighbors in the same segment."""

    __slots__ = ("address", "after", "before", "is_free", "is_small", "requested", "size")

    def __init__(self, size: int, address: int, is_small: bool, before: Block | None, after: Block | None) -> None:
        self.size = size
        self.address = address
        self.is_small = is_small
        self.before = before
        self.after = after
        self.is_free = True
        self.requested = 0


@dataclass(slots=True, eq=False)
class CachingAllocator:
    """The allocator's state: bytes allocated (in blocks), requested and reserved.

    The two free lists are sorted by size and address. The methods are written for speed, since a replay calls them for
    every tensor of a step.
    """

    allocated: int = 0
    requested: int = 0
    reserved: int = 0
    _free_small: list[tuple[int, int, Block]] = field(default_factory=list)
    _free_large: list[tuple[int, int, Block]] = field(default_factory=list)
    _next_address: int = 0

    def allocate(self, nbytes: int) -> Block:
        """Allocate a block for `nbytes` > 0."""
        size = rounded(nbytes)
        if size <= MAX_SMALL_BLOCK:
            free, min_remainder, is_small = self._free_small, ROUNDING, True
        else:
            free, min_remainder, is_small = self._free_large, MAX_SMALL_BLOCK + 1, False
        index = bisect_left(free, (size,))  # before all blocks of this size
        block = free.pop(index)[2] if index < len(free) else self._segment(size, is_small)
        remaining = block.size - size
        if remaining >= min_remainder:
            after = block.after
            remainder = Block(remaining, block.address + size, is_small, block, after)
            if after is not None:
                after.before = remainder
            block.after = remainder
            block.size = size
            insort(free, (remaining, remainder.address, remainder))
        block.is_free = False
        block.requested = nbytes
        self.allocated += block.size
        self.requested += nbytes
        return block

    def free(self, block: Block) -> None:
        """Free `block` and merge it with free neighbors."""
        free = self._free_small if block.is_small else self._free_large
        self.allocated -= block.size
        self.requested -= block.requested
        block.is_free = True
        block.requested = 0
        before = block.before
        if before is not None and before.is_free:
            free.pop(bisect_left(free, (before.size, before.address)))
            _absorb_next(before, block)
            block = before
        after = block.after
        if after is not None and after.is_free:
            free.pop(bisect_left(free, (after.size, after.address)))
            _absorb_next(block, after)
        insort(free, (block.size, block.address, block))

    def _segment(self, size: int, is_small: bool) -> Block:
        block = Block(segment_size(size), self._next_address, is_small, None, None)
        self._next_address += block.size
        self.reserved += block.size
        return block


def _absorb_next(block: Block, after: Block) -> None:
    """Extend `block` by `after`, its neighbor."""
    block.size += after.size
    block.after = after.after
    if after.after is not None:
        after.after.before = block

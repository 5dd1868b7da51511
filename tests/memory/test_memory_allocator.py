"""The caching allocator: sizes of blocks and segments, reuse, splitting and merging."""

from __future__ import annotations

import itertools

import examples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler_kit.memory.allocator import Block, CachingAllocator, rounded, segment_size

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(("nbytes", "size"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)])
def test_a_block_is_rounded_to_512_bytes(nbytes: int, size: int) -> None:
    assert rounded(nbytes) == size


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
    ],
)
def test_the_segment_of_a_request(size: int, segment: int) -> None:
    assert segment_size(size) == segment


def test_small_blocks_share_a_segment() -> None:
    allocator = CachingAllocator()
    for _ in range(4):
        allocator.allocate(512 * KIB)
    assert (allocator.allocated, allocator.reserved) == (2 * MIB, 2 * MIB)
    allocator.allocate(1)
    assert (allocator.allocated, allocator.requested, allocator.reserved) == (2 * MIB + 512, 2 * MIB + 1, 4 * MIB)


def test_a_large_block_is_cut_only_where_more_than_a_mebibyte_is_left() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(12 * MIB))
    held = allocator.allocate(11 * MIB)  # the rest would be one mebibyte: the block is given whole
    assert (allocator.allocated, allocator.requested) == (12 * MIB, 11 * MIB)
    allocator.free(held)
    allocator.allocate(11 * MIB - 512)
    assert allocator.allocated == 11 * MIB - 512
    assert allocator.reserved == 12 * MIB


def test_the_best_fit_is_taken() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(30 * MIB).address == small.address


def test_free_neighbours_merge() -> None:
    allocator = CachingAllocator()
    parts = [allocator.allocate(5 * MIB) for _ in range(4)]
    assert allocator.reserved == 20 * MIB
    for part in (parts[0], parts[2], parts[1], parts[3]):
        allocator.free(part)
    assert allocator.allocate(20 * MIB).size == 20 * MIB
    assert allocator.reserved == 20 * MIB


def test_pools_do_not_mix() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(12 * MIB))
    allocator.allocate(KIB)
    assert allocator.reserved == 14 * MIB


@settings(max_examples=examples.count(50))
@given(st.lists(st.tuples(st.integers(1, 64 * MIB), st.booleans()), max_size=60))
def test_nothing_is_lost(requests: list[tuple[int, bool]]) -> None:
    """Held blocks never overlap, and what is allocated is what is held."""
    allocator = CachingAllocator()
    held: list[Block] = []
    for nbytes, gives_back in requests:
        held.append(allocator.allocate(nbytes))
        if gives_back:
            allocator.free(held.pop(len(held) // 2))
        spans = sorted((block.address, block.address + block.size) for block in held)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert allocator.allocated == sum(block.size for block in held) <= allocator.reserved
        assert allocator.requested == sum(block.requested for block in held) <= allocator.allocated
    for block in held:
        allocator.free(block)
    assert allocator.allocated == allocator.requested == 0

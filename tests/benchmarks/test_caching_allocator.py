"""Expected values by hand, from the rules of PyTorch's caching allocator."""

import pytest

from benchmarks.caching_allocator import MIB, CachingAllocator


def held(*sizes):
    allocator = CachingAllocator()
    for size in sizes:
        allocator.take(size)
    return allocator.reserved


@pytest.mark.parametrize(
    ("sizes", "reserved_mib"),
    [
        ([1], 2),
        ([MIB, MIB], 2),
        ([MIB, MIB, 1], 4),
        ([MIB + 1], 20),
        ([9 * MIB, 9 * MIB], 20),
        ([9 * MIB, 9 * MIB, 9 * MIB], 40),
        ([10 * MIB], 10),
        ([11 * MIB], 12),
        ([12 * MIB + 1], 14),
    ],
)
def test_segments_are_as_large_as_the_rules_say(sizes, reserved_mib):
    assert held(*sizes) == reserved_mib * MIB


def test_freed_neighbours_are_merged():
    allocator = CachingAllocator()
    first = allocator.take(30 * MIB)
    allocator.give(first)
    parts = [allocator.take(10 * MIB) for _ in range(3)]
    for part in (parts[0], parts[2], parts[1]):
        allocator.give(part)
    allocator.take(30 * MIB)
    assert allocator.reserved == 30 * MIB


def test_the_smallest_block_that_fits_is_taken():
    allocator = CachingAllocator()
    large, small = allocator.take(40 * MIB), allocator.take(20 * MIB)
    allocator.give(large)
    allocator.give(small)
    allocator.take(16 * MIB)
    allocator.take(40 * MIB)
    assert allocator.reserved == 60 * MIB


def test_a_block_in_the_middle_keeps_a_segment_from_being_used_whole():
    allocator = CachingAllocator()
    allocator.give(allocator.take(30 * MIB))
    first, _, last = (allocator.take(10 * MIB) for _ in range(3))
    allocator.give(first)
    allocator.give(last)
    allocator.take(20 * MIB)
    assert allocator.reserved == 50 * MIB


def test_a_rest_of_a_mebibyte_or_less_stays_with_its_large_block():
    allocator = CachingAllocator()
    allocator.give(allocator.take(12 * MIB))
    allocator.take(11 * MIB)
    allocator.take(512)
    assert allocator.reserved == 12 * MIB + 2 * MIB


def test_empty_segments_are_given_back_where_the_device_has_no_room():
    allocator = CachingAllocator(limit=50 * MIB)
    allocator.give(allocator.take(30 * MIB))
    allocator.take(40 * MIB)
    assert allocator.reserved == 40 * MIB
    assert allocator.highest == 40 * MIB


def test_a_segment_that_something_lies_in_is_kept():
    allocator = CachingAllocator(limit=50 * MIB)
    allocator.give(allocator.take(30 * MIB))
    allocator.take(10 * MIB)
    allocator.take(40 * MIB)
    assert allocator.reserved == 70 * MIB


def test_blocks_that_wait_for_the_device_are_freed_before_segments_are_given_back():
    waiting = []
    allocator = CachingAllocator(limit=50 * MIB, wait=lambda: allocator.give(waiting.pop()))
    waiting.append(allocator.take(30 * MIB))
    allocator.take(40 * MIB)
    assert allocator.reserved == 40 * MIB


def test_what_was_given_back_before_the_highest_is_forgotten_does_not_show():
    allocator = CachingAllocator(limit=50 * MIB)
    for block in [allocator.take(20 * MIB), allocator.take(28 * MIB)]:
        allocator.give(block)
    allocator.take(30 * MIB)
    assert allocator.highest == 48 * MIB
    allocator.forget_highest()
    assert allocator.highest == 30 * MIB

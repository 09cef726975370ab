"""PyTorch's caching allocator in small: best fit, split and merge within segments.

As c10/cuda/CUDACachingAllocator.cpp does by default: sizes are rounded to 512 bytes; up to 1 MiB come from
segments of 2 MiB, below 10 MiB from segments of 20 MiB, larger ones get a segment of their own, rounded to
2 MiB; a free block is split where more than 512 bytes (small) or 1 MiB (large) are left over. Segments are
given back only when the device has no room for a new one: then all that nothing lies in, at once.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass

MIB = 2**20
ROUND = 512
SMALL, SMALL_SEGMENT = MIB, 2 * MIB
MIDDLE, MIDDLE_SEGMENT = 10 * MIB, 20 * MIB
SEGMENT_ROUND = 2 * MIB


@dataclass(slots=True)
class Piece:
    """A block of a segment with its neighbours, 0 where there is none."""

    size: int
    before: int
    after: int
    small: bool
    free: bool = False


class CachingAllocator:
    """Segments and their blocks; nothing is asked of a device.

    Parameters
    ----------
    limit
        Bytes that the device leaves to segments. Where even giving back does not make room, more are held.
    wait
        Called before segments are given back: it frees blocks that only wait for the device.

    Examples
    --------
    >>> allocator = CachingAllocator()
    >>> first = allocator.take(12 * MIB)
    >>> allocator.give(first)
    >>> second = allocator.take(6 * MIB), allocator.take(6 * MIB)
    >>> allocator.reserved == 12 * MIB
    True
    """

    def __init__(self, limit: float = math.inf, wait: Callable[[], None] = lambda: None) -> None:
        self.reserved = self.highest = 0
        self._limit, self._wait = limit, wait
        self._pieces: dict[int, Piece] = {}
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._last = 0

    def take(self, size: int) -> int:
        """Allocate so many bytes; return the block's number."""
        size = max(-(-size // ROUND), 1) * ROUND
        small = size <= SMALL
        free = self._free[small]
        place = bisect_left(free, (size, 0))
        number = free.pop(place)[1] if place < len(free) else self._segment(size, small)
        piece = self._pieces[number]
        piece.free = False
        left = piece.size - size
        if left >= ROUND if small else left > SMALL:
            self._split(number, size)
        return number

    def forget_highest(self) -> None:
        """Count `highest`, the most that segments have held, from now on."""
        self.highest = self.reserved

    def give(self, number: int) -> None:
        """Free a block, merging it with free neighbours."""
        piece = self._pieces[number]
        if piece.after and self._pieces[piece.after].free:
            self._forget(piece.after)
            self._merge(number, piece.after)
        if piece.before and self._pieces[piece.before].free:
            self._forget(piece.before)
            number = piece.before
            self._merge(number, self._pieces[number].after)
        self._offer(number)

    def _segment(self, size: int, small: bool) -> int:
        if small:
            whole = SMALL_SEGMENT
        else:
            whole = MIDDLE_SEGMENT if size < MIDDLE else -(-size // SEGMENT_ROUND) * SEGMENT_ROUND
        if self.reserved + whole > self._limit:
            self._wait()
            self._give_back()
        self.reserved += whole
        self.highest = max(self.highest, self.reserved)
        return self._new(Piece(whole, 0, 0, small))

    def _give_back(self) -> None:
        """Give back every segment that is one free block."""
        for free in self._free.values():
            whole = [(size, number) for size, number in free if self._is_segment(number)]
            free[:] = [each for each in free if not self._is_segment(each[1])]
            for size, number in whole:
                del self._pieces[number]
                self.reserved -= size

    def _is_segment(self, number: int) -> bool:
        piece = self._pieces[number]
        return not piece.before and not piece.after

    def _new(self, piece: Piece) -> int:
        self._last += 1
        self._pieces[self._last] = piece
        return self._last

    def _split(self, number: int, size: int) -> None:
        piece = self._pieces[number]
        rest = self._new(Piece(piece.size - size, number, piece.after, piece.small))
        if piece.after:
            self._pieces[piece.after].before = rest
        piece.size, piece.after = size, rest
        self._offer(rest)

    def _merge(self, number: int, after: int) -> None:
        piece, gone = self._pieces[number], self._pieces.pop(after)
        piece.size, piece.after = piece.size + gone.size, gone.after
        if gone.after:
            self._pieces[gone.after].before = number

    def _offer(self, number: int) -> None:
        piece = self._pieces[number]
        piece.free = True
        insort(self._free[piece.small], (piece.size, number))

    def _forget(self, number: int) -> None:
        piece = self._pieces[number]
        free = self._free[piece.small]
        del free[bisect_left(free, (piece.size, number))]

"""V schedules of a chosen memory: the block of one micro-batch, repeated every six slots.

A rank has six actions a micro-batch: F and f, i and I, w and W (capitals on the way down of the V, small
letters on the way up). Take a slot for each. If one micro-batch's actions lie in slots that differ modulo six
on every rank, then repeating that block every six slots fills every slot, and a chunk alive for L slots costs
L/6 of a chunk's memory. So the slots between one stage and the next decide the memory, and any choice that
does not collide gives a schedule. What is left is to close up the start and the end, where slots stay empty.

Source: Qi et al., Pipeline Parallelism with Controllable Memory, 2024, arXiv 2405.15362.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from playbook.schedules.letters import spell
from playbook.schedules.packed import Packed

PERIOD = 6
"""Actions of a rank with two chunks for one micro-batch."""

Block = Sequence[tuple[int, int, int, int]]
"""Per rank, the slots of F, f, i and I of micro-batch 0."""


def block(ranks: int, steps: tuple[int, int, int, int], turns: tuple[int, int, int] = (0, 0, 0)) -> Block:
    """Lay out one micro-batch.

    Parameters
    ----------
    ranks
        Ranks of the V.
    steps
        Slots from one stage to the next for F, f, i and I.
    turns
        Slots more than one between F and f, f and i, i and I at the turns of the V.

    Examples
    --------
    >>> block(2, (1, 1, 1, 1))
    [(0, 3, 4, 7), (1, 2, 5, 6)]
    """
    below = ranks - 1
    f = steps[0] * below + 1 + turns[0]
    i = f + steps[1] * below + 1 + turns[1]
    back = i + steps[2] * below + 1 + turns[2]
    return [
        (
            steps[0] * rank,
            f + steps[1] * (below - rank),
            i + steps[2] * rank,
            back + steps[3] * (below - rank),
        )
        for rank in range(ranks)
    ]


def orders_of(laid: Block, microbatches: int, room: int) -> list[Packed]:
    """Each rank's order of the repeated block; the arguments are those of `words`."""
    ranks = len(laid)
    return [
        spell(word, (rank, 2 * ranks - 1 - rank), (microbatches, microbatches))
        for rank, word in enumerate(words(laid, microbatches, room))
    ]


def words(laid: Block, microbatches: int, room: int) -> list[str]:
    """Spell every rank's order: forwards and backwards in the block's order, weights in the gaps.

    For blocks as short as V-Half's the start and the end no longer change once there are p + 2 micro-batches:
    what more there are repeat six letters in the middle.

    Parameters
    ----------
    laid
        The block of one micro-batch.
    microbatches
        Micro-batches to run.
    room
        Chunks that a rank may hold; a forward that has no room makes a backward-weight go first.
    """
    ends = min(microbatches, len(laid) + 2)
    return [_lengthen(word, microbatches - ends) for word in close_up(laid, ends, room)]


def _lengthen(word: str, more: int) -> str:
    if not more:
        return word
    last = word.rindex("F")
    return word[:last] + word[last - PERIOD : last] * more + word[last:]


def close_up(laid: Block, microbatches: int, room: int) -> list[str]:
    """Run the block's order as early as it can, slot by slot, with a backward-weight wherever it cannot."""
    ranks = len(laid)
    wanted = [deque(_sequence(slots, microbatches)) for slots in laid]
    awaited = [_awaited(rank, ranks) for rank in range(ranks)]
    done = [dict.fromkeys("FfiI", 0) for _ in laid]
    weights: list[deque[str]] = [deque() for _ in laid]
    spelled: list[list[str]] = [[] for _ in laid]
    alive = [0] * ranks
    while any(wanted) or any(weights):
        slot = []
        for rank in range(ranks):
            letter = wanted[rank][0] if wanted[rank] else ""
            if letter and _can_run(letter, rank, done, awaited[rank], alive[rank] < room):
                slot.append((rank, wanted[rank].popleft()))
            elif weights[rank]:
                slot.append((rank, weights[rank].popleft()))
        for rank, letter in slot:
            spelled[rank].append(letter)
            if letter in "wW":
                alive[rank] -= 1
                continue
            done[rank][letter] += 1
            if letter in "iI":
                weights[rank].append("w" if letter == "i" else "W")
            else:
                alive[rank] += 1
    return ["".join(letters) for letters in spelled]


def _sequence(slots: tuple[int, int, int, int], microbatches: int) -> list[str]:
    """A rank's forwards and backwards-input in the order of their slots."""
    placed = [
        (slot + PERIOD * microbatch, letter)
        for letter, slot in zip("FfiI", slots, strict=True)
        for microbatch in range(microbatches)
    ]
    return [letter for _, letter in sorted(placed)]


def _awaited(rank: int, ranks: int) -> dict[str, tuple[int, str] | None]:
    """Rank and letter of what each letter waits for."""
    bottom = rank == ranks - 1
    return {
        "F": (rank - 1, "F") if rank else None,
        "f": (rank, "F") if bottom else (rank + 1, "f"),
        "i": (rank - 1, "i") if rank else (rank, "f"),
        "I": (rank, "i") if bottom else (rank + 1, "I"),
    }


def _can_run(
    letter: str,
    rank: int,
    done: list[dict[str, int]],
    awaited: dict[str, tuple[int, str] | None],
    has_room: bool,
) -> bool:
    """Chunks take micro-batches first to last, so counting tells whether the one awaited is done."""
    if letter in "Ff" and not has_room:
        return False
    need = awaited[letter]
    return need is None or done[need[0]][need[1]] > done[rank][letter]

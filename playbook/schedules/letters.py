"""Orders of ranks with two chunks, spelled in letters: which chunk runs what next.

Capitals are the chunk on the way down, small letters the one on the way up: F and f forward, B and b fused
backward, I and i backward for the input, W and w for the weights. "F+b" is a pair that runs at the same time.
Micro-batches follow from counting, since every chunk takes them first to last.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from playbook.schedules.action import KINDS
from playbook.schedules.packed import B, F, I, Packed, W, beside, pack

_KIND = np.zeros(128, dtype=np.int64)
_CHUNK = np.zeros(128, dtype=np.int64)
for _code, _kind in enumerate(KINDS):
    _KIND[[ord(_kind), ord(_kind.lower())]] = _code
    _CHUNK[ord(_kind.lower())] = 1


def spell(
    word: str,
    stages: tuple[int, int],
    microbatches: tuple[int, int],
    first: tuple[int, int] = (0, 0),
) -> Packed:
    """Turn a word into a rank's order.

    Parameters
    ----------
    word
        Letters as above; each chunk's k-th backward-weight belongs to its k-th backward-input.
    stages
        Stage of the chunk on the way down and of the one on the way up.
    microbatches
        Micro-batches that each chunk takes; what the word spells beyond them is left out.
    first
        Each chunk's first micro-batch.

    Examples
    --------
    >>> from playbook.schedules.packed import actions_of
    >>> " ".join(map(str, actions_of(spell("FFfF+biw", (0, 3), (3, 3)))))
    '0F0 0F1 3F0 0F2 3B0 3I1 3W1'
    """
    text = np.frombuffer(word.encode("ascii"), dtype=np.uint8)
    signs = text == ord("+")
    joined = np.append(False, signs)[:-1][~signs]
    text = text[~signs]
    chunk, kind = _CHUNK[text], _KIND[text]
    microbatch = _count(chunk, kind)
    kept = microbatch < np.array(microbatches)[chunk]
    order = pack(np.array(stages)[chunk], kind, microbatch + np.array(first)[chunk])
    paired = joined & np.append(False, kept)[:-1]
    return np.where(paired, beside(order), order)[kept]


def _count(chunk: NDArray[np.int64], kind: NDArray[np.int64]) -> NDArray[np.int64]:
    """Micro-batch of each letter: how often its chunk has done the like before."""
    microbatch = np.zeros(chunk.size, dtype=np.int64)
    for one in (0, 1):
        mine = chunk == one
        for alike in (mine & (kind == F), mine & ((kind == B) | (kind == I))):
            microbatch[alike] = np.arange(np.count_nonzero(alike))
        microbatch[mine & (kind == W)] = microbatch[mine & (kind == I)]
    return microbatch

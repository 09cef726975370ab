"""What overlapped pairs cost where stages differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from playbook.program.schedule import Schedule
from playbook.schedules.packed import is_beside, unpack


def pair_costs(
    order: Schedule, forward: Sequence[float], backward: Sequence[float], overlap: float
) -> list[float]:
    """Cost of a pair by the stage slot of its forward.

    A pair holds a forward and a backward of two stages of one rank. It takes `overlap` of their sum, but no
    less than the longer of the two, which still has to run.

    Parameters
    ----------
    order
        Says which stages meet; of several that a forward meets, the costliest counts.
    forward, backward
        Cost of each model stage.
    overlap
        Part of F + B that a pair of equal stages takes.
    """
    depth, made = order.depth, [0.0] * len(order.placement)
    for packed in order.packed:
        stage, second = unpack(packed)[0], np.flatnonzero(is_beside(packed))
        for slot, other in set(zip(stage[second - 1].tolist(), stage[second].tolist(), strict=True)):
            first, last = forward[slot % depth], backward[other % depth]
            made[slot] = max(made[slot], overlap * (first + last), first, last)
    whole = [overlap * (f + b) for f, b in zip(forward, backward, strict=True)]
    return [cost or whole[slot % depth] for slot, cost in enumerate(made)]

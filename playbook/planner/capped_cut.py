"""The fastest cut whose ranks keep a cap at their peaks, or which rank is over and what would do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from playbook.planner.cut_costs import CutCosts
from playbook.planner.cut_step import StepOf, raised
from playbook.planner.least_cut import least_cut, smallest_cut
from playbook.units import gb

TURNS = 8
"""Times that a cut is sought anew because peaks were above the sums over its layers."""

EXACT_BYTES = 10**6
"""Sums over layers within so much of the peaks count as exact."""


class NoCutFits(ValueError):  # noqa: N818 says what is so, as RankFailed does
    """No cut keeps the cap.

    Parameters
    ----------
    told
        What is over and by how much, without the cap's name and unit.
    cap_bytes
        The cap that was asked for.
    needed_bytes
        A cap that some cut keeps, rounded up to a whole byte.
    """

    def __init__(self, told: str, cap_bytes: float, needed_bytes: int) -> None:
        self.told, self.cap_bytes, self.needed_bytes = told, cap_bytes, needed_bytes
        super().__init__(
            f"memory_cap_bytes={cap_bytes:.0f}: {told}; use memory_cap_bytes={needed_bytes} or more, more "
            f"stages, or recomputation"
        )


def capped_cut(costs: CutCosts, step_of: StepOf, cap: float) -> tuple[tuple[int, ...], bool]:
    """The fastest cut under a cap, and whether that is proven.

    Parameters
    ----------
    costs
        With what the peaks have beside state and activations at one cut; elsewhere it may be more, so the
        peaks of every cut that is found are looked at.
    step_of
        Gives the peaks of a cut.
    cap
        Most bytes on a rank.

    Raises
    ------
    NoCutFits
        If no cut keeps the cap.
    """
    sharper, proven = costs, True
    for _ in range(TURNS):
        found, proven = least_cut(sharper, cap)
        if found is None:
            break
        most = step_of(found).bytes
        if max(most) <= cap:
            return found, proven and (_is_free(costs, found) or _is_exact(costs, found, most))
        sharper = raised(sharper, step_of, found)
    closest = _closest(costs, step_of)
    most = step_of(closest).bytes
    if max(most) <= cap:
        return closest, False
    raise _refusal(costs, closest, most, cap, proven and _is_exact(costs, closest, most))


def _closest(costs: CutCosts, step_of: StepOf) -> tuple[int, ...]:
    """The cut of the smallest peak that was found, whatever the cap: so what a refusal advises works."""
    tried: dict[tuple[int, ...], int] = {}
    while len(tried) < TURNS and (cut := smallest_cut(costs)) not in tried:
        tried[cut] = max(step_of(cut).bytes)
        costs = raised(costs, step_of, cut)
    return min(tried, key=tried.__getitem__)


def _is_free(costs: CutCosts, found: Sequence[int]) -> bool:
    """Whether the slowest rank is as fast as without a cap."""
    free = least_cut(costs, None)[0]
    assert free is not None, "without a cap there is a cut"
    return bool(costs.rank_seconds(found).max() <= costs.rank_seconds(free).max() * (1 + 1e-6))


def _is_exact(costs: CutCosts, found: Sequence[int], most: Sequence[int]) -> bool:
    """Whether the sums over layers are the peaks."""
    return bool(np.abs(costs.rank_bytes(found) - np.array(most)).max() <= EXACT_BYTES)


def _refusal(
    costs: CutCosts, closest: Sequence[int], most: Sequence[int], cap: float, proven: bool
) -> NoCutFits:
    """Which rank is over the cap, and by how much, at the cut that comes closest."""
    size, fits = max(most), "fits" if proven else "was found to fit"
    told = (
        f"no cut of {len(costs.layers)} layers into {costs.order.depth} stages {fits}; at the closest, "
        f"{','.join(map(str, closest))}, rank {most.index(size)} holds {gb(size)}, {gb(size - cap)} over"
    )
    return NoCutFits(told, cap, math.ceil(size))

"""A choice of micro-batches in words: what is fastest, between which ends, and when nothing there is good."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from playbook.units import counted, percent, seconds, significant

if TYPE_CHECKING:
    from playbook.planner.microbatches import MicrobatchChoice, MicrobatchRow


def words(choice: MicrobatchChoice) -> str:
    """The best size with what it trades, or why there is nothing to praise."""
    alone = len({row.microbatches for row in choice.rows}) == 1
    told = _the_one(choice) if alone else _between_ends(choice)
    return told + _does_not_pay(choice) if choice.best.microbatches < choice.stages else told


def _between_ends(choice: MicrobatchChoice) -> str:
    """The best of several sizes, between the smallest bubble and the fastest kernels."""
    best, bubble, kernels = choice.best, choice.smallest_bubble, choice.fastest_kernels
    few = best.microbatches < choice.stages
    return (
        f"{best.schedule} with m = {counted(best.microbatches, 'micro-batch', 'micro-batches')} of "
        f"{best.micro_batch} is "
        f"{'the least slow' if few else 'fastest'}, {seconds(best.step_s)} a step, "
        f"{significant(best.sequences_per_s)} sequences/s ({_trade(best)}); smallest bubble: "
        f"m = {bubble.microbatches} ({_trade(bubble)}); fastest kernels: m = {kernels.microbatches} "
        f"({_trade(kernels)})"
    )


def _the_one(choice: MicrobatchChoice) -> str:
    """The one size there is, and a batch of which several could be compared."""
    best, sizes = choice.best, choice.times.sequences
    text = (
        f"{best.schedule} with m = {counted(best.microbatches, 'micro-batch', 'micro-batches')} of "
        f"{best.micro_batch} takes "
        f"{seconds(best.step_s)} a step ({_trade(best)}), and there is nothing to compare: of the divisors "
        f"of {choice.global_batch}, only {best.micro_batch} could be timed from the sizes {sizes[0]} to "
        f"{sizes[-1]}"
    )
    unit = math.lcm(*sizes[:4])
    more = -(-choice.global_batch // unit) * unit
    if len(sizes) == 1 or more == choice.global_batch:
        return text
    return f"{text}; a micro-batch must divide the batch: of {more} the measured sizes could be compared"


def _does_not_pay(choice: MicrobatchChoice) -> str:
    """Fewer micro-batches than stages: how many ranks' work is done, and what to change."""
    best = choice.best
    busy = significant(choice.stages * (1 - best.idle_over_makespan))
    return (
        f"; with m = {best.microbatches} on {choice.stages} stages {percent(best.idle_over_makespan)} of the "
        f"ranks' time is idle, {choice.stages} ranks do the work of {busy}: pipelining does not pay at this "
        f"size on these times; use fewer stages or a larger batch"
    )


def _trade(row: MicrobatchRow) -> str:
    forward = seconds(row.forward_s_per_sequence)
    return f"{percent(row.idle_over_makespan)} idle, forward of a sequence {forward}"

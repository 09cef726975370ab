"""DualPipeV: DualPipe folded into a V, so that no rank needs a second copy of a stage."""

from __future__ import annotations

from playbook.schedules.conditions import down_and_up, equal_costs
from playbook.schedules.letters import spell
from playbook.schedules.packed import Packed
from playbook.schedules.placement import v_shape
from playbook.schedules.plan import ChunkCosts, Plan


def word(rank: int, ranks: int, microbatches: int) -> str:
    """Spell a rank's order for at least 2p micro-batches, with overlapped forwards and backwards.

    Examples
    --------
    >>> word(0, 2, 4)
    'FFFfiwfF+bf+Bbf+BbIWIW'
    """
    below = ranks - 1 - rank
    pairs = "F+bf+B" * (microbatches - 2 * ranks + rank + 1)
    if below == 0:
        pairs = pairs.replace("+", "", 1)  # at the turn the first pair would hold up the whole drain
    drain = ("bB" * ranks)[: rank + 1]
    split = ("iI" if rank % 2 else "Ii") * ranks
    split = split[: rank + 1] + "I" * below  # carries on where the drain's alternation stops
    weights = split.replace("i", "w").replace("I", "W")
    return "".join(
        (
            "FF" * below,  # until the first forward comes back up
            "Ff" * (rank + 1),  # until the first gradient comes
            "iwf" * below,  # the split fills what would be a wait
            pairs,
            "bf+B" * below,  # forwards have run out on the way down
            drain,  # fused while there is nothing to wait for, then split
            split[: rank + 1],
            "".join(weight + "I" for weight in weights[:below]),
            weights[below:],
        )
    )


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """Every rank's word; below 2p micro-batches the order for 2p without those there are not."""
    spelled = max(microbatches, 2 * ranks)
    return [
        spell(word(rank, ranks, spelled), (rank, 2 * ranks - 1 - rank), (microbatches, microbatches))
        for rank in range(ranks)
    ]


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p − 1)(f&b + b − 3w) on the rank with most pairs, less what the mean rank works more.

    Where a pair takes less than its two halves, ranks differ in work: rank r has r pairs more than rank 0
    (the last rank one fewer than that), so the mean idle time is shorter by (p − 1)(p − 2)/2p savings.
    """
    saved = costs.forward + costs.backward - costs.both
    idlest = costs.both + costs.backward - 3 * costs.backward_weight
    return (ranks - 1) * (idlest - saved * max(0, ranks - 2) / (2 * ranks))


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int | None:
    """2p + 1 chunks on every rank; known from 2p micro-batches on."""
    return None if microbatches < 2 * ranks else 2 * ranks + 1


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """The order is made for at least 2p micro-batches."""
    if microbatches >= 2 * ranks:
        return None
    return (
        f"microbatches={microbatches} is less than 2 stages = {2 * ranks}: ranks wait longer than the "
        f"formula says; the simulation holds, and interleaved-zero-bubble idles less"
    )


def torch_rule(ranks: int, microbatches: int, chunks: int) -> str | None:
    """PyTorch wants as many micro-batches as there are stages, two a rank."""
    if microbatches >= 2 * ranks:
        return None
    fewer = f", stages={microbatches // 2}" if microbatches > 1 else ""
    return (
        f"microbatches={microbatches} with stages={ranks}: torch's dualpipe-v wants microbatches ≥ 2 stages; "
        f"use microbatches={2 * ranks}{fewer}, or zbv"
    )


PLAN = Plan(
    name="dualpipe-v",
    summary="V placement; forwards of one micro-batch hide the communication of another's backward",
    source="DeepSeek-V3 Technical Report, 2024, section 3.2.1; DualPipe's README, section DualPipeV",
    orders=orders,
    idle=idle,
    idle_text="(p − 1)(f&b + b − 3w) on the idlest rank",
    peak=peak,
    peak_text="2 p + 1",
    placement=v_shape,
    default_chunks=2,
    refuse=down_and_up("dualpipe-v"),
    note=note,
    cost_note=equal_costs,
    rules={"torch": torch_rule},
)

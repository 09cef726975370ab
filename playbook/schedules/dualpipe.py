"""DualPipe: micro-batches enter at both ends and pass each other, for a second copy of every stage."""

from __future__ import annotations

from playbook.schedules.conditions import equal_costs, exactly
from playbook.schedules.dualpipe_v import word
from playbook.schedules.letters import spell
from playbook.schedules.packed import Packed
from playbook.schedules.plan import ChunkCosts, Plan


def both_ways(ranks: int, chunks: int = 1) -> tuple[int, ...]:
    """Stages go down the ranks, and their copies up the ranks.

    Examples
    --------
    >>> both_ways(3)
    (0, 1, 2, 2, 1, 0)
    """
    down = tuple(range(ranks))
    return down + down[::-1]


def orders(ranks: int, microbatches: int, chunks: int) -> list[Packed]:
    """DualPipeV unfolded: what one of its ranks does with two chunks, two ranks here do for each other.

    Rank r and its mirror p − 1 − r run the same word; the direction that enters on their side is the one on
    the way down. Half of the micro-batches go each way, and one more goes down where m is odd. With an odd p
    the rank in the middle is its own mirror: the order is that for p + 1 without the second of the two in the
    middle, whose stages just fall out of the chain.
    """
    half, down = (ranks + 1) // 2, microbatches - microbatches // 2
    spelled = max(down, 2 * half)
    made = []
    for rank in range(ranks):
        mirror = 2 * ranks - 1 - rank
        letters = word(min(rank, ranks - 1 - rank), half, spelled)
        if rank < half:
            made.append(spell(letters, (rank, mirror), (down, microbatches - down), (0, down)))
        else:
            made.append(spell(letters, (mirror, rank), (microbatches - down, down), (down, 0)))
    return made


def idle(ranks: int, microbatches: int, chunks: int, costs: ChunkCosts) -> float:
    """(p/2 − 1)(F&B + B − 3W) on the rank with most pairs, less what the mean rank works more.

    As in DualPipeV with p/2 ranks.
    """
    half = ranks // 2
    if not half:
        return 0.0  # one rank waits for nobody
    saved = costs.forward + costs.backward - costs.both
    idlest = costs.both + costs.backward - 3 * costs.backward_weight
    return (half - 1) * (idlest - saved * max(0, half - 2) / (2 * half))


def peak(rank: int, ranks: int, microbatches: int, chunks: int) -> int | None:
    """p + 1 on every rank; known where the formula of the idle time is."""
    return None if note(ranks, microbatches, chunks) else ranks + 1


def note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """Published for even p, even m and at least p micro-batches each way."""
    wrong = []
    if ranks % 2:
        wrong.append(f"stages={ranks} is odd, so the middle rank turns both ways at once")
    if microbatches % 2:
        wrong.append(f"microbatches={microbatches} is odd, so one direction has one more")
    if microbatches < 2 * ranks:
        wrong.append(f"microbatches={microbatches} is less than 2 stages = {2 * ranks}, so ranks wait longer")
    if not wrong:
        return None
    return f"{'; '.join(wrong)}: the formula does not hold; the simulation does"


PLAN = Plan(
    name="dualpipe",
    summary="micro-batches from both ends, forwards beside backwards; twice the parameters",
    source="DeepSeek-V3 Technical Report, 2024, section 3.2.1; DualPipe's README",
    orders=orders,
    idle=idle,
    idle_text="(p/2 − 1)(F&B + B − 3W) on the idlest rank",
    peak=peak,
    peak_text="p + 1",
    placement=both_ways,
    chains=2,
    refuse=exactly(1, "dualpipe", "in each direction", "chunks=1, or dualpipe-v"),
    note=note,
    cost_note=equal_costs,
)

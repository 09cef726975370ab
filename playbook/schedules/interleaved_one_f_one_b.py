"""Interleaved 1F1B: each rank owns v chunks, so the pipeline fills v times as fast."""

from __future__ import annotations

from playbook.schedules.action import Action
from playbook.schedules.plan import Plan


def rounds(ranks: int, microbatches: int) -> list[int]:
    """Sizes of the groups of micro-batches that a rank takes through all its chunks before the next group.

    Groups of p where p divides m, else groups as equal as can be and no smaller than p (one group below p).

    Examples
    --------
    >>> rounds(4, 8), rounds(4, 10), rounds(4, 3)
    ([4, 4], [5, 5], [3])
    """
    count = max(1, microbatches // ranks)
    size, longer = divmod(microbatches, count)
    return [size + 1] * longer + [size] * (count - longer)


def passes(ranks: int, microbatches: int, chunks: int) -> list[tuple[int, int]]:
    """(chunk, micro-batch) in the order of the forwards; backwards take the chunks in reverse."""
    order = []
    first = 0
    for size in rounds(ranks, microbatches):
        order += [(chunk, first + k) for chunk in range(chunks) for k in range(size)]
        first += size
    return order


def rank_order(
    rank: int, ranks: int, chunks: int, ordered: list[tuple[int, int]], group: int
) -> list[Action]:
    """Warm-up of (v − 1) group + 2(p − 1 − r) forwards, then one forward and one backward in turn.

    With one chunk p − 1 − r forwards are enough, and the order is that of 1F1B.
    """
    forwards = [Action(chunk * ranks + rank, "F", k) for chunk, k in ordered]
    backwards = [Action((chunks - 1 - chunk) * ranks + rank, "B", k) for chunk, k in ordered]
    lead = 1 if chunks == 1 else 2
    warmup = min((chunks - 1) * group + lead * (ranks - 1 - rank), len(forwards))
    steady = len(forwards) - warmup
    order = forwards[:warmup]
    for pair in zip(forwards[warmup:], backwards[:steady], strict=True):
        order += pair
    return order + backwards[steady:]


def orders(ranks: int, microbatches: int, chunks: int) -> list[list[Action]]:
    """Order of every rank; rank r holds at most (v − 1)p + 2(p − 1 − r) + 1 chunks when p divides m."""
    ordered = passes(ranks, microbatches, chunks)
    group = max(rounds(ranks, microbatches))
    return [rank_order(rank, ranks, chunks, ordered, group) for rank in range(ranks)]


def idle(ranks: int, microbatches: int, chunks: int, forward: float, backward: float) -> float:
    """(p − 1)(f + b) with the costs of one chunk: 1/v of 1F1B's idle time."""
    return (ranks - 1) * (forward + backward)


def formula_note(ranks: int, microbatches: int, chunks: int) -> str | None:
    """The formula wants whole groups of p micro-batches."""
    if microbatches % ranks == 0 or chunks == 1:
        return None
    return (
        f"microbatches={microbatches} is no multiple of stages={ranks}: "
        f"the idle time is not (p − 1)(f + b) then; the simulation holds"
    )


def torch_rule(ranks: int, microbatches: int, chunks: int) -> str | None:
    """PyTorch wants equal groups."""
    count = max(1, microbatches // ranks)
    if microbatches % count == 0:
        return None
    return (
        f"microbatches={microbatches} with stages={ranks}: torch runs {count} rounds and wants equal ones; "
        f"use microbatches={microbatches // count * count} or {-(-microbatches // count) * count}"
    )


def megatron_rule(ranks: int, microbatches: int, chunks: int) -> str | None:
    """Megatron wants whole groups of p micro-batches."""
    if microbatches % ranks == 0:
        return None
    lower = microbatches // ranks * ranks
    wanted = f"{lower} or {lower + ranks}" if lower else f"{ranks}"
    return (
        f"microbatches={microbatches} with stages={ranks}: megatron wants a multiple of stages; "
        f"use microbatches={wanted}"
    )


PLAN = Plan(
    name="interleaved-1f1b",
    summary="v chunks a rank: 1/v of the idle time, v times the messages",
    source="Narayanan et al., Efficient Large-Scale Language Model Training, 2021, section 2.2.2",
    orders=orders,
    idle=idle,
    note=formula_note,
    rules={"torch": torch_rule, "megatron": megatron_rule},
)

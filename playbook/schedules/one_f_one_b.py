"""1F1B: a rank starts each backward as soon as it can, so few micro-batches are alive."""

from __future__ import annotations

from playbook.schedules.action import Action
from playbook.schedules.gpipe import idle, one_chunk
from playbook.schedules.plan import Plan, no_objection


def rank_order(rank: int, ranks: int, microbatches: int) -> list[Action]:
    """Forwards until the first backward can come, then one backward and one forward in turn."""
    warmup = min(ranks - rank, microbatches)
    order = [Action(rank, "F", microbatch) for microbatch in range(warmup)]
    for microbatch in range(microbatches):
        order.append(Action(rank, "B", microbatch))
        if warmup + microbatch < microbatches:
            order.append(Action(rank, "F", warmup + microbatch))
    return order


def orders(ranks: int, microbatches: int, chunks: int) -> list[list[Action]]:
    """Order of every rank; rank r holds at most p − r micro-batches."""
    return [rank_order(rank, ranks, microbatches) for rank in range(ranks)]


def torch_rule(ranks: int, microbatches: int, chunks: int) -> str | None:
    """PyTorch wants at least one micro-batch a stage."""
    if microbatches >= ranks:
        return None
    return (
        f"microbatches={microbatches} with stages={ranks}: torch's 1f1b wants microbatches ≥ stages; "
        f"use microbatches={ranks}, stages={microbatches}, or gpipe"
    )


PLAN = Plan(
    name="1f1b",
    summary="one forward, one backward: at most p − r micro-batches alive on rank r",
    source="Narayanan et al., Efficient Large-Scale Language Model Training, 2021, section 2.2.1",
    orders=orders,
    idle=idle,
    refuse=one_chunk,
    rules={"torch": torch_rule, "megatron": no_objection},
)

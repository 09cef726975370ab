"""Model state of one rank of any layout under each ZeRO stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache

from playbook.pictures.memory_groups import STATE
from playbook.predict import ZeroState, zero_states
from playbook.predict.orders import routes
from playbook.predict.padding import largest_share
from playbook.predict.stages import blocks_of, context
from playbook.program.block import Block
from playbook.spec import Scenario, Workload
from playbook.tables import TERMS


def rank_states(s: Scenario, rank: int = 0) -> tuple[ZeroState, ...]:
    """State of a rank by the papers' accounting under ZeRO stages 0 to 3.

    Notes
    -----
    Where only data-parallel ranks share the model it is the recipe times Ψ; otherwise it is read off
    the blocks of this rank, which hold its stage, its columns and its experts. Where ranks do not divide the
    rows of experts, stage 3 is that of the rank with most.
    """
    *others, last = even_states(s, rank)
    most = largest_share(s)
    return (*others, replace(last, shared={term: round(size * most) for term, size in last.shared.items()}))


def even_states(s: Scenario, rank: int) -> tuple[ZeroState, ...]:
    """The same with equal shares."""
    layout = s.layout
    if layout.tp == layout.pp == layout.ep == layout.etp == layout.dp_replicate == 1:
        return zero_states(s.model, s.recipe, layout.shard_ranks, s.workload.lora)
    held = [state_terms(s, rank, zero) for zero in range(4)]
    whole = held[0]
    return tuple(
        ZeroState(
            zero=zero,
            copied={term: size for term, size in terms.items() if size == whole[term]},
            shared={term: size for term, size in terms.items() if size != whole[term]},
        )
        for zero, terms in enumerate(held)
    )


def state_terms(s: Scenario, rank: int, zero: int) -> dict[str, int]:
    """Bytes by term that a rank holds between two steps under one ZeRO stage."""
    layout = replace(s.layout, zero=zero, reshard=True)
    return dict(_state_terms(Scenario(s.model, plain(s), layout, s.cluster, framework="textbook"), rank))


def plain(s: Scenario) -> Workload:
    """The workload with as little work as its layout can share: state does not depend on how much it is."""
    layout = s.layout
    few = min(s.workload.sequence, 2 * layout.tp * layout.cp)
    return replace(s.workload, sequence=few, micro_batch=1, global_batch=None, recompute="none")


@lru_cache(maxsize=256)
def _state_terms(s: Scenario, rank: int) -> tuple[tuple[str, int], ...]:
    ctx, mine = context(s, rank), s.layout.coordinates(rank)["pp"]
    held: Counter[str] = Counter()
    for slot, owner in enumerate(routes(s)[0]):
        if owner == mine:
            for block in blocks_of(s, slot, ctx):
                held.update(block_state(block))
    return tuple((term, held[term]) for term in TERMS if held[term])


def block_state(block: Block) -> dict[str, int]:
    """Bytes by term of the state of one block."""
    held: Counter[str] = Counter()
    for tensor in block.tensors:
        if tensor.birth.segment == "S" and tensor.term in STATE and isinstance(tensor.bytes, int):
            held[tensor.term] += tensor.bytes
    return held

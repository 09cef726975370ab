"""Model state of one rank of any layout under each ZeRO stage."""

from __future__ import annotations

from dataclasses import replace

from playbook.predict import ZeroState, zero_states
from playbook.predict.stages import program_of
from playbook.spec import Scenario
from playbook.tables import TERMS

STATE = ("parameters", "gradients", "optimizer", "master_weights")


def rank_states(s: Scenario, rank: int = 0) -> tuple[ZeroState, ...]:
    """State of a rank by the papers' accounting under ZeRO stages 0 to 3.

    Notes
    -----
    Where only data-parallel ranks share the model it is the recipe times Ψ; otherwise it is read off four
    programs of this rank, which hold its stage, its columns and its experts.
    """
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
    variant = Scenario(
        s.model, s.workload, replace(s.layout, zero=zero, reshard=True), s.cluster, framework="textbook"
    )
    state = program_of(variant, rank).memory().state
    return {term: int(state.get(term, 0)) for term in TERMS if term in STATE and state.get(term, 0)}

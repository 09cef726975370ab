"""What a reader of a memory picture should be told in words, most telling first."""

from __future__ import annotations

from collections.abc import Mapping

from playbook.pictures.memory_groups import STATE
from playbook.pictures.memory_layout import schedule_words
from playbook.pictures.words import amount, short
from playbook.predict import TrainingMemory, ZeroState
from playbook.predict.left_out import left_out
from playbook.predict.orders import splits_backward
from playbook.predict.padding import largest_share, uneven_rows
from playbook.spec import Scenario
from playbook.units import counted, percent, thousands

LARGE = 0.25
"""Share of the peak from which on a term is worth a sentence."""
TRANSIENT = ("unsharded", "communication_buffers")
CLAIMS = {1: "optimizer state", 2: "optimizer state and gradients"}


def warnings(memory: TrainingMemory, states: tuple[ZeroState, ...]) -> list[str]:
    """Sentences that hold for a prediction; none where nothing needs saying.

    Parameters
    ----------
    memory
        The worst rank's prediction.
    states
        Model state under ZeRO stages 0 to 3, for what a claim becomes at this number of ranks.
    """
    s, terms, peak = memory.scenario, memory.walk.terms, memory.peak_bytes
    found = (
        logits(s, terms, peak),
        activations(s, terms, peak),
        halves(s),
        transients(s, terms, peak),
        experts(s),
        selective(s),
        claim(s, states),
        uncounted(s),
    )
    return [text for text in found if text]


def logits(s: Scenario, terms: Mapping[str, int], peak: int) -> str:
    """Say that logits and the loss's copies dominate."""
    held = terms.get("logits", 0)
    if held < LARGE * peak:
        return ""
    tokens = s.workload.micro_batch * s.workload.sequence
    chunked = s.workload.loss == "chunked"
    pieces = "" if chunked else ", and so does a loss in pieces if they outweigh the head's gradient in FP32"
    return (
        f"Logits and the copies that the loss makes are {percent(held / peak)} of the peak ({amount(held)}): "
        f"{thousands(tokens)} tokens x {thousands(s.model.vocabulary)} words, several times in "
        f"FP32. A smaller micro-batch lowers it{pieces}; more data-parallel ranks do not."
    )


def activations(s: Scenario, terms: Mapping[str, int], peak: int) -> str:
    """Say that activations do not shard among data-parallel ranks."""
    held = terms.get("activations", 0)
    if s.layout.dp == 1 or held < LARGE * peak:
        return ""
    flash = "flash attention, " if s.workload.attention == "math" else ""
    again = flash + ("" if s.workload.recompute == "full" else "recompute, ")
    return (
        f"Activations ({amount(held)}) do not shard: each of {thousands(s.layout.dp)} ranks has its "
        f"own tokens. "
        f"What lowers them: {again}a smaller micro-batch, tensor with sequence parallelism, context "
        f"parallelism."
    )


def halves(s: Scenario) -> str:
    """Say that a backward in two parts keeps what recomputation has brought back."""
    if s.layout.pp == 1 or s.workload.recompute != "full" or not splits_backward(s.layout.schedule):
        return ""
    return (
        f"{schedule_words(s.layout.schedule)} runs backward in two parts: what full recomputation computes "
        "again stays until the part for weights has run, where a whole backward lets it go layer by layer."
    )


def transients(s: Scenario, terms: Mapping[str, int], peak: int) -> str:
    """Say that gathered layers and their buffers dominate, which more ranks do not lower."""
    held = sum(terms.get(name, 0) for name in TRANSIENT)
    state = sum(terms.get(name, 0) for name in STATE)
    if s.layout.zero < 3 or held < max(LARGE * peak, state):
        return ""
    return (
        f"Layers gathered for a moment and their buffers ({amount(held)}) are more than the state that stays "
        f"({amount(state)}): more ranks will not lower this peak, smaller units will."
    )


def experts(s: Scenario) -> str:
    """Say that an expert tensor has too few rows for FSDP2 to share out among all ranks."""
    uneven = uneven_rows(s)
    if uneven is None or s.layout.zero < 3:
        return ""
    rows, ranks = uneven
    return (
        f"An expert tensor has {counted(rows, 'row')}, and FSDP2 shares out rows: {thousands(ranks)} ranks "
        f"do not divide them, so the first {min(rows, ranks)} hold {largest_share(s):.1f} × an even share."
    )


def selective(s: Scenario) -> str:
    """Say that flash attention has already removed what selective recomputation removes."""
    if s.workload.recompute != "selective" or s.workload.attention != "flash":
        return ""
    return (
        "Selective recomputation drops the attention core's s² scores, and flash attention keeps "
        "none: it saves "
        "next to nothing here."
    )


def claim(s: Scenario, states: tuple[ZeroState, ...]) -> str:
    """Say what "ZeRO-1 saves 4×, ZeRO-2 8×" becomes at this number of ranks."""
    zero, ranks = s.layout.zero, s.layout.shard_ranks
    if zero not in CLAIMS or ranks == 1:
        return ""
    whole, held = states[0].total_bytes, states[zero].total_bytes
    limit = limit_of(s, zero)
    return (
        f"ZeRO-{zero} shares {CLAIMS[zero]}: the state shrinks {short(whole / held, 2)} × at "
        f"{counted(ranks, 'rank')}, and {short(limit, 2)} × at most, however many there are."
    )


def uncounted(s: Scenario) -> str:
    """Name keys of a configuration that were not understood, and modules that no number has."""
    found = left_out(s.model)
    return found and f"{found[0].upper()}{found[1:]}."


def limit_of(s: Scenario, zero: int) -> float:
    """State without sharding over what a stage leaves whole on every rank."""
    recipe = s.recipe
    kept = recipe.parameter_bytes + (recipe.gradient_bytes if zero == 1 else 0)
    return recipe.state_bytes / kept

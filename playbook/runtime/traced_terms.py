"""What a storage was for, told by its life: where it was born, by which operation, and where it died."""

from playbook.runtime.owners import Place
from playbook.runtime.trace_memory import BEFORE, Holding

LOSS = frozenset(
    (
        "_log_softmax",
        "nll_loss_forward",
        "nll_loss_backward",
        "_log_softmax_backward_data",
        "_to_copy",
        "div",
        "exp",
    )
)
"""Operations of the loss, whose owner is the root."""

BACKWARD = ("B", "I", "W")
"""Phases of a backward, whole and in two parts."""

SHARDING = {"aten::_to_copy": "gradients", "aten::clone": "unsharded"}
"""What FSDP's own work makes, by operation: gradients that are cast to be added up, and rows laid out as
whole weights (by hand; the library fills storages that it has). The rest are buffers of its collectives."""


def term_of(holding: Holding, places: tuple[Place | None, ...]) -> str:
    """Term of one holding.

    Parameters
    ----------
    holding
        The storage's stretch of life.
    places
        Where each operation of the step belongs, to read the phase of the death.

    Notes
    -----
    A gradient is what a node that accumulates gradients took, what FSDP's reduction gave out, what FSDP
    cast in order to add it up, or a product of backward that is there for the optimizer. What is born in
    forward and lives to a backward was saved (activations), whatever the owner; the head's output and the
    loss's tensors are logits; what dies in its own segment is temporary.
    """
    if holding.term is not None:
        return holding.term
    place = holding.place
    if place is None or holding.birth == BEFORE:
        return "temporary"
    if place.phase == "O":
        return "temporary" if holding.death is not None else "optimizer"
    if place.aside:
        return SHARDING.get(holding.op, "communication_buffers")
    if _is_loss(holding, place):
        return "logits"
    if place.phase in ("F", "R") and _reaches_backward(holding, places):
        return "activations"
    if place.phase in BACKWARD and _reaches_optimizer(holding, places):
        return "gradients"
    return "temporary"


def _is_loss(holding: Holding, place: Place) -> bool:
    op = holding.op.partition("::")[2]
    if place.owner == "lm_head":
        return place.phase in ("F", "R")
    outside = place.outside or place.phase == "B"
    return outside and place.owner == "" and op in LOSS and len(holding.shape) > 1


def _reaches_backward(holding: Holding, places: tuple[Place | None, ...]) -> bool:
    if holding.death is None:
        return True
    end = places[min(holding.death, len(places) - 1)]
    return end is not None and end.phase in BACKWARD


def _reaches_optimizer(holding: Holding, places: tuple[Place | None, ...]) -> bool:
    """Whether a tensor of backward is there when the optimizer runs: the product of a weight, put off."""
    if holding.death is None:
        return True
    end = places[min(holding.death, len(places) - 1)]
    return end is not None and end.phase == "O"

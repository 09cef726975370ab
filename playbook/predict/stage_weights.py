"""Weights of each pipeline stage, and of one rank of it under tensor parallelism."""

from dataclasses import dataclass

from playbook.spec import Layout, Model, Parameter
from playbook.spec.scenario import check_stages, check_tensor_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """Weights of one pipeline stage.

    Parameters
    ----------
    stage, layers
        Number of the stage, and how many layers it has.
    parameters
        Elements, the copy of a tied table on the last stage among them.
    share
        An equal share of them for each tensor-parallel rank: what a division by TP would say.
    rank
        What a tensor-parallel rank really holds: norms, routers and the squeezing projections of latent
        attention are copied to each, and so is a key-value head where there are fewer than ranks.
    """

    stage: int
    layers: int
    parameters: int
    share: float
    rank: int


def stage_weights(model: Model, layout: Layout) -> tuple[StageWeights, ...]:
    """Count the weights of each stage; of the layout, `pp`, `chunks`, `stage_layers` and `tp` are read.

    Raises
    ------
    ValueError
        If the stages do not add up to the model's layers, or TP does not divide its sizes.
    """
    check_stages(model, layout)
    check_tensor_parallel(model, layout)
    counts = layout.stage_layers or (model.layers // layout.stages,) * layout.stages
    whole = model.stage_parameters(counts, copies=True)
    split = {kind: rank_elements(model, model.block_parameters(kind), layout.tp) for kind in model.kinds}
    found, first = [], 0
    for stage, number in enumerate(counts):
        held = sum(split[model.kind_of(layer)] for layer in range(first, first + number))
        held += rank_elements(model, ends(model, stage, len(counts)), layout.tp)
        found.append(
            StageWeights(
                stage=stage,
                layers=number,
                parameters=whole[stage],
                share=whole[stage] / layout.tp,
                rank=held,
            )
        )
        first += number
    return tuple(found)


def ends(model: Model, stage: int, stages: int) -> tuple[Parameter, ...]:
    """Weights of a stage that belong to no layer."""
    first = model.embedding_parameters() if stage == 0 else ()
    last = model.head_parameters() if stage == stages - 1 else ()
    copy = model.embedding_parameters()[:1] if last and model.tied and stages > 1 else ()
    return (*first, *last, *copy)


def rank_elements(model: Model, weights: tuple[Parameter, ...], tp: int) -> int:
    """Elements of some weights that one tensor-parallel rank holds."""
    total = 0
    for weight in weights:
        parts = 1 if weight.tp_dim is None else tp
        if ".k_proj." in weight.name or ".v_proj." in weight.name:
            parts = min(tp, model.kv_heads)
        total += weight.numel // parts
    return total

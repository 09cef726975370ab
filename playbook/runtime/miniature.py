"""A model in miniature: the same structure, at sizes where FP64 takes a moment and shards are unequal."""

from dataclasses import replace

from playbook.spec import Layout, Model

SEQUENCE = 8
"""Tokens of a sequence, for each tensor-parallel rank a whole number."""


def miniature(model: Model, layout: Layout) -> Model:
    """Shrink a model to sizes at which mistakes in cutting show.

    Rows do not divide among data-parallel ranks, there are fewer key-value heads than heads, and where the
    model has fewer key-value heads than tensor-parallel ranks, so has the miniature.

    Parameters
    ----------
    model
        Gives the structure: biases, norms, tied tables, query and key norms.
    layout
        Gives what has to divide: tensor-parallel ranks and stages.
    """
    tp, copies = layout.tp, max(1, layout.tp // model.kv_heads)
    kv_heads = 2 if tp == 1 else tp // copies
    return replace(
        model,
        name=f"{model.name} in miniature",
        layers=model.layers if layout.stage_layers else max(2, layout.stages),
        hidden=21,
        heads=4 if tp == 1 else 2 * tp,
        kv_heads=kv_heads,
        head_dim=6,
        ffn=43 * tp,
        vocabulary=131 if tp == 1 else 37 * tp,
        max_sequence=4 * SEQUENCE * tp,
        window=None,
        source=f"made from {model.name} for the parity gate",
    )

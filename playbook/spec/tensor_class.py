"""Classes of a model's tensors, by which a recipe may store them differently."""

from typing import Literal

TensorClass = Literal["matrix", "table", "head", "vector"]
"""A projection of a layer, an embedding table, the output head, or a norm's weight or a bias."""


def class_of(name: str, dims: int) -> TensorClass:
    """Return the class of a tensor by its name and how many dimensions it has.

    Examples
    --------
    >>> class_of("self_attn.q_proj.weight", 2), class_of("embed_tokens.weight", 2), class_of("norm.weight", 1)
    ('matrix', 'table', 'vector')
    """
    if dims < 2 or name.endswith("bias"):  # a bias of experts has two
        return "vector"
    if name.startswith("embed_"):
        return "table"
    return "head" if name.startswith("lm_head") else "matrix"

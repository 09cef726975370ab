"""Vocabularies that frameworks pad until tensor-parallel ranks can share them, as data that the checks read.

Sources: NVIDIA/Megatron-LM, training/arguments.py (`make_vocab_size_divisible_by`, 128 by default) and
training/tokenizer (`_vocab_size_with_padding`: a multiple of it times the tensor-parallel size);
huggingface/nanotron, config/config.py (the same name, 1 by default) and helpers.py.
"""

from dataclasses import replace

from playbook.spec.model import Model

PADDED_TO = {"megatron": 128, "nanotron": 1}
"""Frameworks that pad a vocabulary, each to a multiple of so many times tp; with the others tp divides it."""


def pads_vocabulary(framework: str) -> bool:
    """Tell whether a framework pads vocabularies, so that any tensor-parallel degree divides them."""
    return framework in PADDED_TO


def padded_vocabulary(model: Model, framework: str, tp: int) -> Model:
    """Return the model with the vocabulary that a framework gives it.

    Examples
    --------
    >>> from playbook.spec import model
    >>> padded_vocabulary(model("gpt2"), "megatron", 2).vocabulary
    50432
    """
    each = PADDED_TO[framework] * tp
    return replace(model, vocabulary=-(-model.vocabulary // each) * each)

"""What a model has and no prediction counts: said in the note of each."""

from playbook.spec import Model
from playbook.units import thousands


def left_out(model: Model) -> str:
    """Keys of the model's file that were not understood, and its multi-token modules, in words; else empty.

    Examples
    --------
    >>> from playbook.spec import model
    >>> left_out(model("deepseek-v3")) == (
    ...     "1 multi-token module of 11\\u2009610\\u2009067\\u2009968 parameters has no part in these numbers"
    ... )
    True
    >>> left_out(model("llama-3.1-8b"))
    ''
    """
    return noted(model.unread, modules(model))


def noted(*parts: str) -> str:
    """Join the parts of a note that say something."""
    return "; ".join(filter(None, parts))


def modules(model: Model) -> str:
    """Say that multi-token modules are counted nowhere; empty where there are none."""
    if not model.mtp:
        return ""
    count = thousands(sum(weight.numel for weight in model.mtp_parameters()))
    if model.mtp == 1:
        return f"1 multi-token module of {count} parameters has no part in these numbers"
    return f"{model.mtp} multi-token modules of {count} parameters each have no part in these numbers"

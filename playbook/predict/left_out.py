"""What a model has and no prediction counts: said in the note of each."""

from playbook.spec import Model


def left_out(model: Model) -> str:
    """Keys of the model's file that were not understood, in words; else empty."""
    return model.unread


def noted(*parts: str) -> str:
    """Join the parts of a note that say something."""
    return "; ".join(filter(None, parts))

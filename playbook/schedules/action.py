"""One action of a pipeline rank, and its short text form."""

from __future__ import annotations

import re
from typing import NamedTuple

KINDS = ("F", "B", "I", "W")
"""Forward, fused backward, backward for the input, backward for the weights. B = I + W."""

_TEXT = re.compile(r"(\d+)([FBIW])(\d+)")


class Action(NamedTuple):
    """Forward or backward of one micro-batch on one stage.

    A tuple and not a dataclass: schedules have hundreds of thousands of them.

    Examples
    --------
    >>> str(Action(2, "F", 0))
    '2F0'
    >>> Action.parse("2F0").kind
    'F'
    """

    stage: int
    """Virtual stage, 0 is the first of the model; with v chunks a rank owns v of them."""
    kind: str
    """One of `KINDS`."""
    microbatch: int
    beside: bool = False
    """Whether it runs at the same time as the action before it in the order: an overlapped forward and
    backward is a pair, of which this is the second."""

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @property
    def id(self) -> str:
        """The action's id in every table, as in `m0/F/stage2`."""
        return f"m{self.microbatch}/{self.kind}/stage{self.stage}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Read the text form, as in "2F0": stage 2, forward, micro-batch 0.

        Raises
        ------
        ValueError
            If the text is anything else.
        """
        match = _TEXT.fullmatch(text.strip().upper())
        if match is None:
            raise ValueError(
                f"{text.strip()!r} is not a pipeline action; write stage, kind and micro-batch as in 2F0, "
                f"with kind one of {', '.join(KINDS)} (forward, backward, backward-input, backward-weight)"
            )
        stage, kind, microbatch = match.groups()
        return cls(int(stage), kind, int(microbatch))

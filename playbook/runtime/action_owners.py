"""Where an operation of a pipeline rank belongs: the action that runs says micro-batch and phase."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from playbook.program.ids import Id, parse
from playbook.runtime.owners import Owners, Place
from playbook.runtime.part import Watch
from playbook.runtime.pipeline_executor import COMPUTE
from playbook.runtime.torch_private import current_node, sequence_number
from playbook.runtime.trace_memory import Ledger


class ActionOwners(Owners, Watch):
    """Follows the stages of one rank; forwards run in any order there, so counting them tells nothing.

    Parameters
    ----------
    stages
        The rank's stages, by number.
    ledger
        Learns that a gradient that comes in is no activation.
    """

    def __init__(self, stages: nn.Module, ledger: Ledger) -> None:
        super().__init__(stages)
        self.ledger = ledger
        self._action: Id | None = None
        self._over = False

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Note which action runs."""
        made = parse(action)
        if kind == "receive" and message is not None and made.phase != "F":
            self.ledger.mark(message, "temporary")
        self._action = made if kind in COMPUTE else self._action
        yield
        self._action = None if kind in COMPUTE else self._action

    def place(self) -> Place | None:
        """Return where the operation of this moment belongs; between actions it is the rank's own work."""
        node, made = current_node(), self._action
        self._over = self._over or self._optimizing > 0
        if self._over:
            return Place(microbatch=-1, phase="O", owner="")
        if made is None:
            return Place(microbatch=-1, phase="F", owner="", outside=True)
        if self._stack:
            phase = "F" if node is None else "R"
            return Place(microbatch=made.microbatch, phase=phase, owner=self._stack[-1])
        if node is None:
            return Place(microbatch=made.microbatch, phase=made.phase, owner="", outside=True)
        accumulates = sequence_number(node) is None
        owner = "" if accumulates else self._span(node)[0]
        return Place(
            microbatch=made.microbatch,
            phase=made.phase,
            owner=owner,
            aside=accumulates,
            outside=accumulates,
            accumulates=accumulates,
        )

    def _enter(self, name: str) -> None:
        super()._enter(name.partition(".")[2])


class Together(Watch):
    """Several watches of one step."""

    def __init__(self, *watches: Watch) -> None:
        self.watches = watches

    def enter(self, microbatch: int, phase: str) -> None:
        """Tell all."""
        for watch in self.watches:
            watch.enter(microbatch, phase)

    @contextmanager
    def during(self, kind: str, action: str, message: Tensor | None = None) -> Iterator[None]:
        """Enclose in all."""
        with ExitStack() as stack:
            for watch in self.watches:
                stack.enter_context(watch.during(kind, action, message))
            yield

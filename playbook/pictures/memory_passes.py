"""What each strategy does to one layer: the operations that it adds, and what the layer then holds.

The layer is put together anew for each row, with one more of the scenario's axes than in the row before, so
that a row is what the program itself has there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from playbook.frameworks import policy
from playbook.pictures.words import amount
from playbook.predict.stages import blocks_of, context
from playbook.program.block import Block
from playbook.spec import Layout, Scenario
from playbook.units import counted

NAMES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "recompute": "recomputation",
    "zero": "ZeRO",
}
PLURALS = {
    "all_reduce": "all-reduces",
    "all_gather": "all-gathers",
    "reduce_scatter": "reduce-scatters",
    "all_to_all": "all-to-alls",
    "broadcast": "broadcasts",
    "send_recv": "sends",
}
UNSHARED = {"fsdp2-mixed": "bf16-fp32master"}
"""Recipe that computes alike where nothing is shared yet."""
ALWAYS_SHARED = ("torchtitan",)
"""Frameworks that have a mixed recipe under FSDP2 only: one rank there shares with itself."""
MOMENT = ("unsharded", "communication_buffers", "temporary")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStep:
    """One layer after some passes.

    Parameters
    ----------
    name
        The last of them.
    adds
        Operations that it added, in words.
    state_bytes, saved_bytes, moment_bytes
        What the layer keeps between steps, what its forward keeps for its backward, and the largest tensor
        that it needs for a moment beside that.
    """

    name: str
    adds: str
    state_bytes: int
    saved_bytes: int
    moment_bytes: int

    @property
    def row(self) -> list[str]:
        """As text, for a table."""
        sizes = (self.state_bytes, self.saved_bytes, self.moment_bytes)
        return [self.name, self.adds, *(amount(size) for size in sizes)]


def layer_steps(s: Scenario) -> list[LayerStep]:
    """One layer of a scenario, before any pass and after each; the last layer kind of a mixture of kinds.

    Raises
    ------
    ValueError
        If the scenario's framework does not do even its first variant.
    """
    found: list[LayerStep] = []
    before: Block | None = None
    for name, variant in variants(s):
        block = layer_of(variant)
        adds = added(before, block) if before is not None else f"{len(block.forward)} operations forward"
        found.append(
            LayerStep(
                name=name,
                adds=adds,
                state_bytes=state_bytes(block, s, variant.layout.dp > 1),
                saved_bytes=sum(int(t.bytes) for t in block.tensors if t.saved),  # type: ignore[arg-type]
                moment_bytes=max((int(t.bytes) for t in block.tensors if t.term in MOMENT), default=0),  # type: ignore[arg-type]
            )
        )
        before = block
    return found


def variants(s: Scenario) -> Iterator[tuple[str, Scenario]]:
    """The scenario on one rank, then with one more of its axes each time, in the order of the passes."""
    layout = s.layout
    unshared = {} if s.framework in ALWAYS_SHARED else UNSHARED
    recipe = unshared.get(s.workload.recipe, s.workload.recipe)
    work = replace(s.workload, recompute="none", global_batch=None, recipe=recipe)
    steps: list[tuple[str, dict[str, Any], dict[str, Any]]] = [("one rank", {}, {})]
    if layout.tp > 1:
        fields = {"tp": layout.tp, "sequence_parallel": layout.sequence_parallel}
        steps.append((f"{NAMES['tp']} {layout.tp}", fields, {}))
    if layout.cp > 1:
        steps.append((f"{NAMES['cp']} {layout.cp}", {"cp": layout.cp, "cp_method": layout.cp_method}, {}))
    if s.workload.recompute != "none":
        steps.append(
            (f"{s.workload.recompute} {NAMES['recompute']}", {}, {"recompute": s.workload.recompute})
        )
    if layout.dp > 1 or layout.zero:
        who = f"{NAMES['zero']}-{layout.zero}" if layout.zero else "DDP"
        names = ("dp", "zero", "reshard", "dp_replicate", "ep", "etp", "ep_rule")
        fields = {name: getattr(layout, name) for name in names}
        steps.append((f"{who} over {layout.shard_ranks}", fields, {"recipe": s.workload.recipe}))
    given: dict[str, Any] = {"zero": layout.zero} if s.framework in ALWAYS_SHARED else {}
    for name, fields, workload in steps:
        given |= fields
        work = replace(work, **workload)
        yield name, Scenario(s.model, work, Layout(**given), framework=s.framework)


@lru_cache(maxsize=64)
def layer_of(s: Scenario) -> Block:
    """The last layer of a scenario on one stage."""
    return blocks_of(s, 0, context(s))[-2]


def state_bytes(block: Block, s: Scenario, shared: bool) -> int:
    """Bytes that a layer keeps between steps: by the recipe, or what a pass has left of it."""
    if shared:
        held = [t for t in block.tensors if t.birth.segment == "S" and t.term != "workspace"]
        return sum(int(t.bytes) for t in held)  # type: ignore[arg-type]
    recipe = s.recipe
    gradients = recipe.gradient_bytes if policy(s.framework).gradients_resident else 0
    each = recipe.parameter_bytes + recipe.optimizer_bytes + gradients
    return each * int(block.numel)  # type: ignore[arg-type]


def added(before: Block, after: Block) -> str:
    """Operations of one block that another has not, in words."""
    new = operations(after) - operations(before)
    moves = [
        f"{count} {PLURALS[op] if count > 1 else op.replace('_', '-')} over {axis}"
        for (op, axis), count in sorted(new.items())
        if axis and op in PLURALS
    ]
    again = sum(op.phase == "R" for op in after.backward) - sum(op.phase == "R" for op in before.backward)
    if again > 0:
        moves.append(f"{counted(again, 'operation')} again in backward")
    return ", ".join(moves) or "none"


def operations(block: Block) -> Counter[tuple[str, str | None]]:
    """How often a block has each operation on each axis."""
    every = (*block.forward, *block.backward, *block.optimizer)
    return Counter((op.op, op.axis) for op in every)

"""What each layer of a model costs a pipeline stage that holds it: seconds, state, activations.

Read off the templates after the layout's passes and the cluster's rates, for one micro-batch on one rank.
Rows on other queues (gathers and reductions over dp) overlap with the layer's products and are left out;
collectives of tensor parallelism stand between products and are counted.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from playbook.predict.rates import rates_of
from playbook.predict.stages import SHARED_GRADIENTS, blocks_of, context, kinds_of
from playbook.program.assemble import assemble
from playbook.program.block import Block
from playbook.program.lay import Stage
from playbook.program.op import Size
from playbook.program.order import accumulate, runs_now
from playbook.program.policy import Context
from playbook.program.state import held_numel, term_bytes
from playbook.program.timeline import durations
from playbook.spec import Scenario

LAID = 3
"""Layers of a kind that are laid; the middle one has a layer on either side, as most have."""


OF_OPTIMIZER = frozenset(("optimizer", "master_weights"))
"""Terms of the optimizer's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """One layer, or an end of the model, on one rank.

    Parameters
    ----------
    name
        "embedding", "layers.0" and so on, "head".
    forward_s, backward_input_s, backward_weight_s
        Seconds of one micro-batch; recomputation counts to the backward for inputs.
    state_bytes
        Parameters, gradients, master weights and moments that the rank holds for it, and buffers of their
        size.
    activation_bytes
        What forward keeps of one micro-batch until backward.
    """

    name: str
    forward_s: float
    backward_input_s: float
    backward_weight_s: float
    state_bytes: int
    activation_bytes: int

    @property
    def backward_s(self) -> float:
        """Seconds of a backward in one."""
        return self.backward_input_s + self.backward_weight_s

    @property
    def seconds(self) -> float:
        """Seconds of forward and backward."""
        return self.forward_s + self.backward_s


def layer_costs(s: Scenario) -> tuple[LayerCost, ...]:
    """Predict what each layer costs: the embedding, every layer, the head with its loss, in order of depth.

    Notes
    -----
    Prediction. The scenario's own pipeline is left out: the model is laid as one stage, so costs do not
    depend on the cut that they are used for. A tied head holds the table too, as in a pipeline, where it is
    another stage's than the embedding.
    """
    one = unpiped(s)
    ctx = replace(context(one), pipelined=s.layout.pp > 1, even_shares=True)
    kinds = kinds_of(s, range(s.model.layers))
    laid = {kind: kind_costs(one, ctx, kinds.index(kind)) for kind in dict.fromkeys(kinds)}
    embedding, _, head = laid[kinds[0]]
    table = table_bytes(one, ctx, embedding.state_bytes)
    inner = (replace(laid[kind][1], name=f"layers.{number}") for number, kind in enumerate(kinds))
    return (embedding, *inner, replace(head, state_bytes=head.state_bytes + table))


def kind_costs(s: Scenario, ctx: Context, layer: int) -> tuple[LayerCost, LayerCost, LayerCost]:
    """Costs of the embedding, of one layer among its like, and of the head."""
    blocks = blocks_of(s, 0, ctx, [layer] * LAID)
    seconds = seconds_of(s, Stage(blocks, [-1, *range(LAID), -1]))
    places = {"embedding": 0, "layer": 1 + LAID // 2, "head": len(blocks) - 1}
    first, inner, last = (
        LayerCost(
            name=name,
            forward_s=float(seconds[0, place]),
            backward_input_s=float(seconds[1, place]),
            backward_weight_s=float(seconds[2, place]),
            state_bytes=state_bytes(blocks[place], ctx, s.layout.zero),
            activation_bytes=activation_bytes(blocks[place]),
        )
        for name, place in places.items()
    )
    return first, inner, last


def unpiped(s: Scenario) -> Scenario:
    """The scenario without its pipeline, at one micro-batch."""
    layout = replace(s.layout, pp=1, schedule="1f1b", chunks=1, stage_layers=None)
    work = replace(s.workload, global_batch=layout.dp * s.workload.micro_batch)
    return replace(s, layout=layout, workload=work)


def seconds_of(s: Scenario, stage: Stage) -> NDArray[np.float64]:
    """Seconds of each block's forward, backward for inputs and backward for weights: three rows."""
    program = assemble({0: stage}, accumulate(1), axes=s.layout.group_sizes)
    busy = durations(program, rates_of(s))
    busy[program.rows.stream != program.streams.index("compute")] = 0
    found, begin = np.zeros((3, len(stage.blocks))), 0
    for letter in "FB":
        kept = np.flatnonzero(runs_now(stage.rows[letter].when, first=True, last=True))
        mine = np.arange(begin, begin + len(kept))
        begin += len(kept)
        block = stage.segments[letter].block_of_row[kept]
        kind = (letter == "B") * (1 + program.rows.for_weights[mine])
        np.add.at(found, (kind, block), busy[mine])
    return found


def state_bytes(block: Block, ctx: Context, zero: int) -> int:
    """Bytes that are there between steps or for gradients, which may be shared out; the workspace of
    libraries is left out.

    Where whole parameters are shared out, a block's cost is an equal share of its own, whoever holds it.
    """
    held = [tensor for tensor in block.tensors if tensor.birth.segment == "S" and tensor.term != "workspace"]
    total = sum(whole(tensor.bytes) for tensor in held)
    if zero == 1 and ctx.policy.broadcasts:
        total -= sum(whole(tensor.bytes) for tensor in held if tensor.term in OF_OPTIMIZER)
        total += sum(whole(term_bytes(block.weights, ctx, True, t)) for t in OF_OPTIMIZER - ctx.hosted)
    if ctx.policy.gradients_resident:
        return total
    shared = zero >= SHARED_GRADIENTS
    return total + ctx.recipe.gradient_bytes * whole(held_numel(block.weights, ctx, shared))


def activation_bytes(block: Block) -> int:
    """Bytes that forward keeps for backward."""
    return sum(whole(tensor.bytes) for tensor in block.tensors if tensor.saved)


def whole(size: Size) -> int:
    """A size that is a number."""
    assert isinstance(size, int)
    return size


def table_bytes(s: Scenario, ctx: Context, held: int) -> int:
    """State of the copy of a tied table that the head's stage holds: the table's part of the embedding's."""
    if not s.model.tied:
        return 0
    embedding = blocks_of(s, 0, ctx, ())[0]
    return held * whole(embedding.weights[0].numel) // whole(embedding.numel)

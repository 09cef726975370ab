"""ZeRO stage 2 as a pass: gradients and the optimizer's state are shared out, parameters stay whole.

Communicates over dp: a reduce-scatter of the gradients in backward, an all-gather of the parameters after
the step; together 2 (N − 1)/N of the bytes, as much as an all-reduce.
"""

from dataclasses import replace

from playbook.program.block import Block
from playbook.program.passes import Blocks, Plan, each, enter
from playbook.program.policy import Context
from playbook.program.state import state
from playbook.spec import Layout
from playbook.strategies.zero1.plan import return_parameters, scatter_gradients


def share_gradients(blocks: Blocks, ctx: Context) -> Blocks:
    """Share gradients and optimizer state, reduce-scatter in backward, gather parameters after the step."""

    def rewrite(block: Block) -> Block:
        block = enter(block, "data")
        held = state(block, ctx, parameters=False, gradients=True, optimizer=True)
        block = replace(block, tensors=(*block.tensors, *held))
        return return_parameters(scatter_gradients(block, ctx), ctx)

    return each(blocks, rewrite)


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks are replicas that share gradients and optimizer."""
    return Layout(dp=ranks, zero=2, **levers)  # type: ignore[arg-type]


PLAN = Plan(
    name="zero2",
    axis="dp",
    step="data",
    summary="Each rank keeps 1/N of the gradients and of the optimizer's state; parameters stay whole.",
    levers={},
    applies=lambda layout: layout.zero == 2,
    rewrite=share_gradients,
    layout=layout,
    framework="textbook",
)

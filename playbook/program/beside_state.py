"""What stands beside a block's state for a while: an optimizer's workspace, and state that is kept on the
host and passes through the device."""

from collections.abc import Mapping
from dataclasses import replace

from playbook.program.block import Block, Tensor
from playbook.program.op import END, OPTIMIZER, START, At, Size
from playbook.program.policy import Context
from playbook.program.tensor_bytes import kind, number, trainable

BF16 = 2


def on_their_way(sizes: Mapping[str, Size]) -> tuple[Tensor, ...]:
    """What passes through the device of a block's state on the host: its parameters while it is run, its
    gradients while backward makes them.

    Parameters
    ----------
    sizes
        Bytes of the block's whole state on the host, by term.
    """
    made: list[Tensor] = []
    parameters, gradients = sizes.get("parameters", 0), sizes.get("gradients", 0)
    if parameters != 0:
        there = Tensor(
            name="parameters on their way",
            term="unsharded",
            bytes=parameters,
            birth=At("F", START),
            fwd_end=At("F", END),
        )
        made += [there, replace(there, birth=At("B", START), fwd_end=None, bwd_end=At("B", END))]
    if gradients != 0:
        made.append(
            Tensor(
                name="gradients on their way",
                term="gradients",
                bytes=gradients,
                birth=At("B", START),
                bwd_end=At("B", END),
            )
        )
    return tuple(made)


def workspace(block: Block, ctx: Context) -> tuple[Tensor, ...]:
    """Copies in BF16 of the largest projection, whole, in which an optimizer works, once a stage."""
    copies = ctx.recipe.workspace_copies
    matrices = [weight for weight in trainable(ctx.stage) if kind(weight) == "matrix"]
    if not copies or not matrices or not block.first:
        return ()
    sizes = []
    for weight in matrices:
        rows, columns = weight.shape[-2:]  # each expert is a matrix of its own
        sizes.append((1 if weight.tp_dim is None else ctx.tp) * rows * columns)
    return (
        Tensor(
            name="optimizer workspace",
            term="temporary",
            bytes=BF16 * copies * max(sizes, key=number),
            birth=OPTIMIZER,
            fwd_end=OPTIMIZER,
        ),
    )

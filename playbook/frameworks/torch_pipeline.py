"""What torch.distributed.pipelining does to the memory of a stage, beside its order (torch 2.13).

A stage has a room for the input and one for the incoming gradient of every micro-batch of a step, made once
and kept for good (`stage.py`, `_setup_forward_recv_info`). What it receives lies there, so an input takes
nothing more; what the stage before on the same rank hands over becomes the room itself.

A message that is sent lives as long as somebody holds it. Schedules of one stage a rank (`gpipe`, `1f1b`)
hold the last one of each direction until the next. The others run in a loop that waits for what it has sent
at the end of the step, and a pending send keeps its tensor (`schedules.py`, `send_ops`); where backward is
split an input keeps its gradient even to the next step (`_backward.py`, `stage_backward_input`).

A stage holds its output until its backward is over, the last one its logits (`stage.py`,
`backward_one_chunk`). Gradients are divided by the number of micro-batches at the end, not each loss.
"""

from dataclasses import replace

from playbook.frameworks.aten_ends import rotary
from playbook.frameworks.lines import Segment, of_forward
from playbook.program.block import Block, Tensor
from playbook.program.op import BEFORE_STEP, END, FIRST, At, Op, Size, rows
from playbook.program.passes import Blocks
from playbook.program.policy import Context, Sizes
from playbook.spec import Scenario

ONE_STAGE = ("gpipe", "1f1b")
"""Schedules whose ranks hold one stage, and wait for a message before they send the next."""

TABLES = ("cosine table", "sine table")
DIVISIONS = ("/div#0",)


def as_library(blocks: Blocks, s: Scenario, ctx: Context) -> Blocks:
    """Turn a pipeline stage, after all passes, into one that the library runs; leave other blocks as they
    are."""
    if not ctx.pipelined:
        return blocks
    waits = s.layout.schedule in ONE_STAGE
    if blocks[0].name == "receive":
        first, size = without(blocks[1], At("F", END, -1))
        sizes = Sizes.of(s.model, s.workload, s.recipe, symbolic=ctx.symbolic)
        blocks = (receives(blocks[0], ctx, sizes, size, waits), first, *blocks[2:])
    if blocks[-1].name == "send":
        last, size = without(blocks[-2], At("B", END, 1))
        return (*blocks[:-2], last, sends(blocks[-1], ctx, size, waits))
    return (*blocks[:-1], keeps_logits(blocks[-1]))


def near(block: Block) -> bool:
    """Whether the stage on the other side of a receive or a send is on the same rank: nothing travels."""
    return not any(op.axis == "pp" for op in block.forward)


def without(block: Block, birth: At) -> tuple[Block, Size]:
    """Take what a neighbour hands in out of a block: it lies in a room. Returns its size too."""
    handed = [tensor for tensor in block.tensors if tensor.birth == birth and tensor.name != "output"]
    kept = tuple(tensor for tensor in block.tensors if tensor not in handed)
    return replace(block, tensors=kept), sum((tensor.bytes for tensor in handed), 0)


def room(name: str, ctx: Context, size: Size) -> Tensor:
    """The rooms of one direction, one for each micro-batch of a step."""
    return Tensor(name=name, term="communication_buffers", bytes=ctx.microbatches * size, birth=At("S"))


def receives(block: Block, ctx: Context, sizes: Sizes, size: Size, waits: bool) -> Block:
    """The start of a stage that does not embed: rooms, gradients that are sent, rotary tables of its own."""
    (gradient,) = (tensor for tensor in block.tensors if tensor.name == "gradient")
    sent = [replace(gradient, weight_end=At("I", END))]  # handed over, it takes the place of the room
    if not near(block):
        gradient = replace(gradient, weight_end=None, term="communication_buffers")
        before = replace(
            gradient, name="gradient before", birth=At("B", END), bwd_end=At("B", END), when="step"
        )
        kept = replace(gradient, bwd_end=BEFORE_STEP, weight_end=At("O", END))
        sent = [gradient, before] if waits else [kept]
    ahead = Segment("F", rotary(sizes))
    made = [keep_tables(tensor) for tensor in of_forward(ahead, Segment("B", ()))]
    return replace(
        block,
        forward=rows((*block.forward, *ahead.rows)),
        tensors=(*sent, room("rooms for inputs", ctx, size), *made, *others(block)),
    )


def others(block: Block) -> tuple[Tensor, ...]:
    """What passes have put into the start of a stage."""
    return tuple(tensor for tensor in block.tensors if tensor.name != "gradient")


def keep_tables(tensor: Tensor) -> Tensor:
    """Let the rotary tables live until the stage's first layer has gone back."""
    if tensor.name not in TABLES:
        return tensor
    return replace(tensor, term="activations", bwd_end=At("B", END, 1), weight_end=At("W", END, FIRST))


def sends(block: Block, ctx: Context, size: Size, waits: bool) -> Block:
    """The end of a stage that has no head: rooms for gradients, and an output that the next stage takes over
    if it is on the same rank."""
    tensors: list[Tensor] = []
    handed = near(block)
    for tensor in block.tensors:
        if tensor.name == "output" and handed:
            tensor = replace(tensor, bwd_end=None, weight_end=None, term="temporary")
        elif tensor.name == "output":
            end = At("B", END, FIRST) if waits else BEFORE_STEP
            tensor = replace(tensor, bwd_end=end, weight_end=tensor.weight_end if waits else None)
        tensors.append(tensor)
    return replace(block, tensors=(*tensors, room("rooms for gradients", ctx, size)))


def keeps_logits(block: Block) -> Block:
    """The head: logits stay to the end of backward, and the loss is not divided.

    Where backward is split, I retains the graph: what the loss saved goes with its end, when the loss is
    detached.
    """
    end = At("I", END, FIRST)

    def keep(tensor: Tensor) -> Tensor:
        if tensor.name == "logits":
            return replace(tensor, bwd_end=At("B", END, FIRST), weight_end=end)
        return replace(tensor, weight_end=end) if tensor.name == "log-softmax" else tensor

    return replace(
        block,
        forward=undivided(block.forward),
        backward=undivided(block.backward),
        tensors=tuple(map(keep, block.tensors)),
    )


def undivided(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Rows without the division of the loss."""
    return tuple(op for op in ops if op.name not in DIVISIONS)

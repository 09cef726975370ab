"""Pipeline parallelism: a stage's ends become receives and sends, and the schedule is the order list of its
runs.

Communicates over pp: per micro-batch and boundary between two ranks one message forward and one backward,
each of the residual stream. Where the schedule splits backward, the message goes out of I. Where it sends
micro-batches in from both ends, two ranks hold a copy of each stage, and sum its gradients at the end.
"""

from collections.abc import Sequence
from dataclasses import replace

from playbook.program.block import Block, Tensor
from playbook.program.op import END, FIRST, START, At, Op, Size, rows
from playbook.program.order import Run
from playbook.program.passes import Blocks, Plan, each
from playbook.program.policy import Context, Sizes
from playbook.program.schedule import schedule
from playbook.program.state import held_numel
from playbook.schedules import Action
from playbook.spec import Layout, Model, Scenario, model

LIBRARY_SCHEDULES = (
    *("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "interleaved-zero-bubble", "zbv"),
    "dualpipe-v",
)
"""Schedules that torch.distributed.pipelining runs too."""


def receive_block(sizes: Sizes, stage: int, near: bool = False, keeps: bool = False) -> Block:
    """What stands before a stage's first layer: the activation comes in, its gradient goes out.

    Parameters
    ----------
    sizes, stage
        Sizes; the number that the messages are named after.
    near
        Whether the stage before is on the same rank, so that nothing is sent.
    keeps
        Whether the framework keeps the gradient that was sent until W, where backward is split.
    """
    size = sizes.value * sizes.T * sizes.h
    until = At("W", END, FIRST) if keeps else None
    return Block(
        name="receive",
        forward=() if near else rows([message("receive", "F", size, stage)]),
        backward=() if near else rows([message("send", "B", size, stage)]),
        tensors=(replace(gradient(size), weight_end=until),),
    )


def send_block(sizes: Sizes, stage: int, policy_keeps: bool, near: bool = False) -> Block:
    """What stands after a stage's last layer: the activation goes out, its gradient comes in."""
    size = sizes.value * sizes.T * sizes.h
    output = Tensor(name="output", term="activations", bytes=size, birth=At("F", END, -1), region="full")
    output = replace(output, fwd_end=At("F", END))
    if policy_keeps:
        output = replace(output, bwd_end=At("B", START), weight_end=At("W", END, FIRST))
    return Block(
        name="send",
        forward=() if near else rows([message("send", "F", size, stage)]),
        backward=() if near else rows([message("receive", "B", size, stage)]),
        tensors=(output,),
    )


def message(op: str, phase: str, size: Size, stage: int) -> Op:
    """One message of the residual stream or its gradient."""
    return Op(owner=f"stage{stage}", op=op, phase=phase, axis="pp", payload=size, region="full", stream="pp")


def gradient(size: Size) -> Tensor:
    """The gradient that a receive block sends on; it belongs to its consumer."""
    born, sent = At("B", END, 1), At("B", END)
    return Tensor(name="gradient", term="temporary", bytes=size, birth=born, bwd_end=sent, region="full")


def keep_input(blocks: Blocks) -> Blocks:
    """Keep a stage's received input until its backward is over, W included, as torch.distributed.pipelining
    does."""
    if not blocks or blocks[0].name != "receive" or len(blocks) < 2:
        return blocks
    first = blocks[1]
    tensors = tuple(
        replace(tensor, bwd_end=At("B", END), weight_end=At("W", END, FIRST))
        if tensor.birth == At("F", END, -1)
        else tensor
        for tensor in first.tensors
    )
    return (blocks[0], replace(first, tensors=tensors), *blocks[2:])


def leave_to_weights(blocks: Blocks) -> Blocks:
    """Leave the whole backward of the model's first stage to W, as torch.distributed.pipelining does.

    No gradient of its input is wanted, so I only takes in the one of its output (`stage.py` of torch 2.13,
    `backward_one_chunk`). W is then a backward in one, whose nodes let go what they saved as they run.
    """

    def undivided(tensor: Tensor) -> Tensor:
        return replace(tensor, weight_end=None) if tensor.bwd_end else tensor

    def rewrite(block: Block) -> Block:
        inside = block.layered or block.name == "embedding"
        late = (op if op.axis == "pp" else replace(op, for_weights=True) for op in block.backward)
        tensors = (undivided(tensor) if inside else tensor for tensor in block.tensors)
        return replace(block, backward=tuple(late), tensors=tuple(tensors))

    return each(blocks, rewrite)


def sum_copies(blocks: Blocks, ctx: Context, stage: int, shared: bool) -> Blocks:
    """Sum a stage's gradients with those of its copy, once, after the last micro-batch.

    Parameters
    ----------
    blocks, ctx
        The stage's blocks after all passes.
    stage
        The number that the collective is named after.
    shared
        Whether data-parallel ranks share the gradients out, so that each pair sums its shard.
    """
    numel = sum((held_numel(block.weights, ctx, shared) for block in blocks), 0)
    op = message("all_reduce", "O", ctx.recipe.gradient_bytes * numel, stage)
    return (replace(blocks[0], copies=rows([op])), *blocks[1:])


def runs(order: Sequence[Action]) -> tuple[Run, ...]:
    """A rank's actions as the runs of its program; an overlapped pair is laid one after the other."""
    return tuple(Run(action.kind, action.stage, action.microbatch) for action in order)


def same(blocks: Blocks, ctx: Context) -> Blocks:
    """Leave templates as they are: a pipeline is the order in which they are laid."""
    return blocks


def refuse_run(scenario: Scenario, by_hand: bool) -> None:
    """Refuse models and orders that the code on ranks does not run."""
    model, layout = scenario.model, scenario.layout
    if model.tied:
        raise ValueError(
            f"model {model.name} has a tied table, whose gradient the first and last stage would have to "
            "add up; use an untied model, such as toy-15m"
        )
    if layout.schedule.endswith(".csv"):
        return
    framework = None if by_hand else "torch"
    order = schedule(layout.schedule, layout.pp, scenario.microbatches, layout.chunks, framework=framework)
    if not by_hand and layout.schedule not in LIBRARY_SCHEDULES:
        raise ValueError(
            f"schedule={layout.schedule} is none of the library's that run here, "
            f"{', '.join(LIBRARY_SCHEDULES)}; use by='hand'"
        )
    if not by_hand and order.splits_backward:
        refuse_lost_gradients(layout)


def refuse_lost_gradients(layout: Layout) -> None:
    """Refuse data parallelism for which torch's split backward loses gradients without a word (torch 2.13,
    traced).

    `stage_backward_input` asks for the nodes of the parameters that the stage has before its backward gathers
    them: those of FSDP2's shards, to which no node of its graph leads. `stage_backward_weight` takes
    gradients by `autograd.grad`, which calls none of the hooks by which DDP reduces.
    """
    if layout.zero == 3 and layout.reshard:
        raise ValueError(
            f"schedule={layout.schedule} with zero=3: torch's split backward makes no gradients of weights "
            "that FSDP2 frees after forward; use reshard=False, or a schedule that does not split backward"
        )
    if layout.zero < 3 and layout.dp > 1:
        raise ValueError(
            f"schedule={layout.schedule} with dp={layout.dp} and zero={layout.zero}: torch's split backward "
            "calls none of DDP's hooks, so that replicas would go apart; use zero=3 with reshard=False, or a "
            "schedule that does not split backward"
        )


def toy_of_stages(layout: Layout) -> Model:
    """`toy-15m`, with more or fewer layers where its six do not fill the stages equally."""
    toy = model("toy-15m")
    layers = sum(layout.stage_layers or ()) or -(-toy.layers // layout.stages) * layout.stages
    return toy if layers == toy.layers else replace(toy, name=f"toy of {layers} layers", layers=layers)


def layout(ranks: int, **levers: object) -> Layout:
    """All ranks share the layers."""
    return Layout(pp=ranks, **levers)  # type: ignore[arg-type]


PLAN = Plan(
    name="pp",
    axis="pp",
    step="pipeline",
    summary="Each rank holds some of the layers; micro-batches flow through, and idle slots are the price.",
    levers={
        "schedule": "order of forward and backward actions",
        "chunks": "stages that a rank holds",
        "stage_layers": "layers of each stage",
    },
    applies=lambda layout: layout.pp > 1,
    rewrite=same,
    layout=layout,
    default_model=toy_of_stages,
    run_levers={
        "unit_s": "seconds of a unit of cost; above 0, sleeps of that length stand in for compute",
        "forward": "cost of one chunk's forward, in units; one number, or one for each stage",
        "backward": "cost of a whole backward, likewise; backward_input + backward_weight if not given",
        "backward_input": "cost of the part of backward that the stage before waits for, likewise",
        "backward_weight": "cost of the other part, the weights' gradients, likewise",
        "overlap": "cost of a forward and a backward at the same time, likewise; their sum if not given",
        "latency": "units between an action's end and the earliest start of its consumer on another rank",
        "order": "an order of your own that runs instead of `schedule`: a Schedule, CSV text, or its path",
    },
    refuse_run=refuse_run,
    workload={"microbatches": 4},
)

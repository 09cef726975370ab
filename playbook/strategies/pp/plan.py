"""Pipeline parallelism: a stage's ends become receives and sends, and the schedule is the order list of its
runs.

Communicates over pp: per micro-batch and boundary one message forward and one backward, each of the residual
stream.
"""

from collections.abc import Sequence
from dataclasses import replace

from playbook.program.block import Block, Tensor
from playbook.program.op import END, START, At, Op, rows
from playbook.program.order import Run
from playbook.program.passes import Blocks, Plan
from playbook.program.policy import Context, Sizes
from playbook.program.schedule import schedule
from playbook.schedules import Action
from playbook.spec import Layout, Scenario

LIBRARY_SCHEDULES = (
    *("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zero-bubble", "zbv", "dualpipe-v"),
)
"""Schedules that torch.distributed.pipelining runs too."""


def receive_block(sizes: Sizes, stage: int) -> Block:
    """What stands before a stage's first layer: the activation comes in, its gradient goes out."""
    size, owner = sizes.value * sizes.T * sizes.h, f"stage{stage}"
    message = {"owner": owner, "axis": "pp", "payload": size, "region": "full", "stream": "pp"}
    return Block(
        name="receive",
        forward=rows([Op(op="receive", phase="F", **message)]),
        backward=rows([Op(op="send", phase="B", **message)]),
        tensors=(gradient(size),),
    )


def send_block(sizes: Sizes, stage: int, policy_keeps: bool) -> Block:
    """What stands after a stage's last layer: the activation goes out, its gradient comes in."""
    size, owner = sizes.value * sizes.T * sizes.h, f"stage{stage}"
    message = {"owner": owner, "axis": "pp", "payload": size, "region": "full", "stream": "pp"}
    output = Tensor(name="output", term="activations", bytes=size, birth=At("F", END, -1), region="full")
    output = replace(output, fwd_end=At("F", END), bwd_end=At("B", START) if policy_keeps else None)
    return Block(
        name="send",
        forward=rows([Op(op="send", phase="F", **message)]),
        backward=rows([Op(op="receive", phase="B", **message)]),
        tensors=(output,),
    )


def gradient(size: object) -> Tensor:
    """The gradient that a receive block sends on; it belongs to its consumer."""
    born, sent = At("B", END, 1), At("B", END)
    return Tensor(name="gradient", term="temporary", bytes=size, birth=born, bwd_end=sent, region="full")  # type: ignore[arg-type]


def keep_input(blocks: Blocks) -> Blocks:
    """Keep a stage's received input until its backward is over, as torch.distributed.pipelining does."""
    if not blocks or blocks[0].name != "receive" or len(blocks) < 2:
        return blocks
    first = blocks[1]
    tensors = tuple(
        replace(tensor, bwd_end=At("B", END)) if tensor.birth == At("F", END, -1) else tensor
        for tensor in first.tensors
    )
    return (blocks[0], replace(first, tensors=tensors), *blocks[2:])


def runs(order: Sequence[Action]) -> tuple[Run, ...]:
    """A rank's actions as the runs of its program.

    Raises
    ------
    ValueError
        If the schedule splits backward in two, which templates do not yet.
    """
    for action in order:
        if action.kind not in "FB":
            raise ValueError(
                f"action {action} splits backward into input and weight parts, which the step program does "
                "not lay yet; use schedule gpipe, 1f1b or interleaved-1f1b"
            )
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
    schedule(layout.schedule, layout.pp, scenario.microbatches, layout.chunks, framework=framework)
    if not by_hand and layout.schedule not in LIBRARY_SCHEDULES:
        raise ValueError(
            f"schedule={layout.schedule} is none of the library's that run here, "
            f"{', '.join(LIBRARY_SCHEDULES)}; use by='hand'"
        )


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
    run_levers={
        "unit_s": "seconds of a unit of cost; sleep stretches every action to its cost, 0 leaves real times",
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

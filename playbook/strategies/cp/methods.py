"""How keys and values reach every query: passed around a ring, gathered, or exchanged for heads."""

from collections.abc import Callable
from dataclasses import replace

from playbook.program.block import Block, Tensor
from playbook.program.op import At, Op, Segment, Size, rows
from playbook.program.policy import Context
from playbook.program.polynomial import scaled
from playbook.strategies.cp.core import Core, Part

FP32 = 4


def ring(block: Block, core: Core, ctx: Context) -> Block:
    """Pass keys and values around, each rank adding a part of the scores to its output at every hop.

    In backward the gradients of keys and values travel with them, in the dtype of computation. A hop's send
    and receive buffers, the part's output beside the FP32 sum of outputs and its log-sum-exps, and in
    backward the part's gradients, are memory where the policy counts buffers.
    """
    key = core.keys.local + core.values.local
    hop = exchange(core, "send_recv", "F", core.keys, key, stream="ring")
    back = exchange(core, "send_recv", "B", core.keys, 2 * key, stream="ring")
    hops = ctx.cp - 1
    block = replace(
        block,
        forward=around(block.forward, core.forward, before=[hop] * hops),
        backward=around(block.backward, core.backward, before=[back] * hops),
    )
    if not ctx.policy.buffers:
        return block
    value, first = ctx.recipe.compute_bytes, f"{core.owner}/send_recv@cp#0"
    output = core.output
    return with_tensors(
        block,
        held("ring buffers", "F", 2 * key, core.keys, first, core.forward),
        held("ring part", "F", output.local, output, core.forward, core.forward),
        held("ring sum", "F", scaled(output.local, FP32, value), output, core.forward, core.forward),
        *(
            held("ring log-sum-exps", "F", part.local, part, core.forward, core.forward)
            for part in [core.sums]
            if part is not None
        ),
        held("ring buffers again", "B", 4 * key, core.keys, first, core.backward),
        held("ring query gradient", "B", core.queries.local, core.queries, core.backward, core.backward),
        held("ring gradients", "B", key, core.keys, core.backward, core.backward),
    )


def gather(block: Block, core: Core, ctx: Context) -> Block:
    """Gather keys and values before the core, in forward and again in backward; scatter their gradients."""
    parts = (core.keys, core.values)
    whole = core.keys.whole + core.values.whole
    ahead = [exchange(core, "all_gather", "F", part, part.whole) for part in parts]
    again = [exchange(core, "all_gather", "B", part, part.whole) for part in parts]
    scattered = [exchange(core, "reduce_scatter", "B", part, part.whole) for part in parts]
    block = replace(
        block,
        forward=around(block.forward, core.forward, before=ahead),
        backward=around(block.backward, core.backward, before=again, behind=scattered),
    )
    if not ctx.policy.buffers:
        return block
    first, last = f"{core.owner}/all_gather@cp#0", f"{core.owner}/reduce_scatter@cp#1"
    return with_tensors(
        block,
        held("whole keys and values", "F", whole, core.keys, first, core.forward),
        held("whole keys and values again", "B", whole, core.keys, first, core.backward),
        held("whole gradients of keys and values", "B", whole, core.keys, core.backward, last),
    )


def ulysses(block: Block, core: Core, ctx: Context) -> Block:
    """Exchange tokens for heads before the core and back behind it: there each rank has all tokens of 1/c
    of the heads.

    The core keeps its output by heads, the product behind it the same output by tokens.
    """
    parts = (core.queries, core.keys, core.values)
    ahead = [exchange(core, "all_to_all", "F", part, part.local) for part in parts]
    output = exchange(core, "all_to_all", "F", core.output, core.output.local)
    again = exchange(core, "all_to_all", "B", core.output, core.output.local)
    back = [exchange(core, "all_to_all", "B", part, part.local) for part in parts]
    block = replace(
        block,
        forward=around(block.forward, core.forward, before=ahead, behind=[output]),
        backward=around(block.backward, core.backward, before=[again], behind=back),
    )
    name = f"{core.owner}/all_to_all@cp#"
    kept = held("output by heads", "F", core.output.local, core.output, core.forward, f"{name}3")
    kept = replace(kept, term="activations", bwd_end=At("B", core.backward))
    if not ctx.policy.buffers:
        return with_tensors(block, kept)
    orders: tuple[tuple[Segment, tuple[Part, ...]], ...] = (
        ("F", (*parts, core.output)),
        ("B", (core.output, *parts)),
    )
    staged = (
        held(f"exchanged {number}", segment, part.local, part, f"{name}{number}", f"{name}{number}")
        for segment, order in orders
        for number, part in enumerate(order)
    )
    return with_tensors(block, kept, *staged)


METHODS: dict[str, Callable[[Block, Core, Context], Block]] = {
    "ring": ring,
    "all-gather": gather,
    "ulysses": ulysses,
}


def exchange(core: Core, op: str, phase: str, part: Part, payload: Size, stream: str = "compute") -> Op:
    """One collective of the core over cp; it runs again wherever the core does."""
    return Op(
        owner=core.owner,
        op=op,
        phase=phase,
        axis="cp",
        payload=payload,
        region=part.region,
        stream=stream,
        group=core.group,
    )


def around(
    ops: tuple[Op, ...], name: str, before: list[Op], behind: list[Op] | None = None
) -> tuple[Op, ...]:
    """Put rows before and behind a named one."""
    place = [op.name for op in ops].index(name)
    return rows((*ops[:place], *before, ops[place], *(behind or ()), *ops[place + 1 :]))


def held(name: str, segment: Segment, size: Size, part: Part, birth: str, death: str) -> Tensor:
    """Memory of an exchange, from one row of a segment to another."""
    term = "temporary" if birth == death else "communication_buffers"
    tensor = Tensor(name=name, term=term, bytes=size, birth=At(segment, birth), region=part.region)
    end = At(segment, death)
    return replace(tensor, fwd_end=end) if segment == "F" else replace(tensor, bwd_end=end)


def with_tensors(block: Block, *tensors: Tensor) -> Block:
    """The block with more tensors."""
    return replace(block, tensors=(*block.tensors, *tensors))

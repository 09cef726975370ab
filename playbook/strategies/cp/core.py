"""The attention core of a block as context parallelism sees it: its two rows, and what goes in and out."""

from dataclasses import dataclass

from playbook.program.block import Block, Tensor
from playbook.program.op import Op, Region, Size
from playbook.program.policy import Context

OUTPUTS = ("attention output", "o")
"""Names that policies give the core's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Queries, keys, values, output or log-sum-exps: bytes before and after the sequence is cut."""

    whole: Size
    local: Size
    region: Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The attention core of a block.

    Parameters
    ----------
    forward, backward
        Names of its rows.
    owner, group
        As its rows have them.
    queries, keys, values, output, sums
        What it reads and makes; `sums` are the log-sum-exps, None where it keeps scores.
    windowed
        Whether a token attends to a window that is narrower than the sequence.
    """

    forward: str
    backward: str
    owner: str
    group: str
    queries: Part
    keys: Part
    values: Part
    output: Part
    sums: Part | None
    windowed: bool


def core_of(block: Block, ctx: Context) -> Core | None:
    """Find a block's attention core; None where it has none.

    Raises
    ------
    ValueError
        If attention is no fused core here, or the policy's template names no queries, keys, values or output.
    """
    ahead, back = first_core(block.forward), first_core(block.backward)
    if ahead is None or back is None:
        if any(op.owner.startswith("self_attn") for op in block.forward):
            raise ValueError(
                f"cp={ctx.cp} with attention that is no fused kernel (attention='math', or grouped heads in "
                "FP32): keys and values are sent to fused cores only; use attention='flash' and a BF16 "
                "recipe, or framework='textbook'"
            )
        return None
    born = [tensor for tensor in block.tensors if tensor.birth.row == ahead.name and tensor.name in OUTPUTS]
    queries, keys, values = (part(named(block, name), ctx) for name in "qkv")
    sums = [tensor for tensor in block.tensors if tensor.name == "log-sum-exp"]
    if not born:
        raise ValueError(
            f"block {block.name!r} names no output of its attention core; call the tensor 'attention output'"
        )
    return Core(
        forward=ahead.name,
        backward=back.name,
        owner=ahead.owner,
        group=ahead.group,
        queries=queries,
        keys=keys,
        values=values,
        output=part(born[0], ctx),
        sums=part(sums[0], ctx) if sums else None,
        windowed=windowed(ahead, queries, ctx),
    )


def first_core(ops: tuple[Op, ...]) -> Op | None:
    """The first row of a segment that computes attention."""
    return next((op for op in ops if op.op.startswith("sdpa")), None)


def named(block: Block, name: str) -> Tensor:
    """A tensor of the block by name."""
    found = [tensor for tensor in block.tensors if tensor.name == name]
    if not found:
        raise ValueError(
            f"block {block.name!r} names no tensor {name!r}, which context parallelism sends; "
            "call the core's inputs q, k and v"
        )
    return found[0]


def part(tensor: Tensor, ctx: Context) -> Part:
    """A tensor's bytes before and after the cut."""
    return Part(whole=tensor.bytes, local=ctx.divide(tensor.bytes, ctx.cp, "c"), region=tensor.region)


def windowed(core: Op, queries: Part, ctx: Context) -> bool:
    """Whether the core has less than half the FLOPs of the whole score matrix, 4·s a query value.

    With s tokens a sequence; a window that is wider than half of it counts as none.
    """
    if not isinstance(core.flops, int) or not isinstance(queries.whole, int):
        return False
    return core.flops < 2 * ctx.sequence * queries.whole // ctx.recipe.compute_bytes

"""Low-rank adapters: weights are frozen, and named projections get a trained product of two thin matrices
beside theirs.

A frozen product makes no gradient of its weight, so its input is not kept; the gradient of its input needs
the weight only. What the layer's other parts keep (norms, attention core, activation function) is still
needed, and the input of a projection with an adapter is what the adapter's first matrix multiplies. Where
frozen weights are quantised each is widened to BF16 while its product runs, in forward and in backward.

Sources: Hu et al., LoRA, 2021, section 4; Dettmers et al., QLoRA, 2023, section 3.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from playbook.program.block import Block, Junction, Tensor, Weight
from playbook.program.op import END, At, Op, Region, Size
from playbook.program.passes import Blocks, each
from playbook.program.products import FOR_INPUT, FOR_WEIGHT, products, readers
from playbook.spec import Lora, Recipe

RowsOf = Callable[[str], list[Op]]
BF16 = 2
MATRIX_DIMS = 2


def adapt(blocks: Blocks, lora: Lora, recipe: Recipe, tokens: Size) -> Blocks:
    """Freeze every weight of a stage, and put adapters beside the projections of that name.

    Parameters
    ----------
    blocks
        The stage's blocks, before any other pass.
    lora
        Rank and names.
    recipe
        For the bytes of a value, and for how frozen weights are stored.
    tokens
        Tokens of a micro-batch.
    """
    return each(blocks, lambda block: adapt_block(block, lora, recipe, tokens))


def adapt_block(block: Block, lora: Lora, recipe: Recipe, tokens: Size) -> Block:
    """Freeze one block and adapt its projections."""
    found = products(block)
    chosen = {owner: weight for owner, weight in found.items() if is_target(weight, lora)}
    regions: dict[str, Region] = {op.owner: op.region for op in block.forward if op.owner in found}
    gone = {op.name for op in block.backward if op.for_weights}
    kept = tuple(op for op in block.backward if not op.for_weights)
    rank = lora.rank
    backward = with_rows(kept, chosen, lambda o: backward_rows(o, chosen[o], regions[o], rank * tokens))
    changed = replace(
        block,
        forward=with_rows(
            block.forward, chosen, lambda o: forward_rows(o, chosen[o], regions[o], rank * tokens)
        ),
        backward=backward,
    )
    tensors = [
        *(t for t in (tensor_after(t, block, backward, found, chosen, gone) for t in block.tensors) if t),
        *(hidden(owner, recipe.compute_bytes * rank * tokens) for owner in chosen),
        *(wide for owner in found if recipe.frozen_blocks for wide in widened(owner, found[owner], regions)),
    ]
    frozen = (replace(weight, frozen=True, ready=At("B", END)) for weight in block.weights)
    added = (matrix for owner, weight in chosen.items() for matrix in thin(owner, weight, rank))
    return replace(
        changed,
        tensors=tuple(tensors),
        weights=(*frozen, *added),
        junctions=tuple(junction_after(junction, chosen, gone) for junction in block.junctions),
    )


def is_target(weight: Weight, lora: Lora) -> bool:
    """Whether a projection gets an adapter; experts' batched ones never do."""
    owner = weight.name.removesuffix(".weight")
    return len(weight.shape) == MATRIX_DIMS and owner.rpartition(".")[2] in lora.targets


def with_rows(ops: tuple[Op, ...], owners: Mapping[str, Weight], rows_of: RowsOf) -> tuple[Op, ...]:
    """Put an adapter's rows behind its projection's product."""
    placed: list[Op] = []
    for op in ops:
        placed.append(op)
        if op.owner in owners and op.name == f"{op.owner}{FOR_INPUT}":
            placed += rows_of(op.owner)
    return tuple(placed)


def sides(owner: str, weight: Weight, region: Region, inner: Size) -> tuple[tuple[str, Size, Region], ...]:
    """Owner, FLOPs and region of an adapter's two products: the side that the projection splits is split."""
    out, into = weight.shape
    splits_out = weight.tp_dim == 0
    first, second = ("whole", region) if splits_out else (region, "whole")
    return (f"{owner}.lora_A", 2 * inner * into, first), (f"{owner}.lora_B", 2 * inner * out, second)


def forward_rows(owner: str, weight: Weight, region: Region, inner: Size) -> list[Op]:
    """Down to the rank and up again."""
    return [
        Op(owner=name, op="mm", phase="F", name=f"{name}{FOR_INPUT}", flops=flops, region=split)
        for name, flops, split in sides(owner, weight, region, inner)
    ]


def backward_rows(owner: str, weight: Weight, region: Region, inner: Size) -> list[Op]:
    """Backward of both products, each for its input and for its weight."""
    found = []
    for name, flops, split in reversed(sides(owner, weight, region, inner)):
        row = Op(owner=name, op="mm", phase="B", name=f"{name}{FOR_INPUT}", flops=flops, region=split)
        found += [row, replace(row, name=f"{name}{FOR_WEIGHT}", for_weights=True)]
    return found


def thin(owner: str, weight: Weight, rank: int) -> tuple[Weight, Weight]:
    """The two matrices of an adapter."""
    out, into = weight.shape
    first, second = f"{owner}.lora_A", f"{owner}.lora_B"
    return (
        Weight(
            name=f"{first}.weight",
            shape=(rank, into),
            tp_dim=1 if weight.tp_dim == 1 else None,
            ready=At("B", f"{first}{FOR_WEIGHT}"),
        ),
        Weight(
            name=f"{second}.weight",
            shape=(out, rank),
            tp_dim=0 if weight.tp_dim == 0 else None,
            ready=At("B", f"{second}{FOR_WEIGHT}"),
        ),
    )


def hidden(owner: str, size: Size) -> Tensor:
    """What lies between the two matrices, which the second one's gradient needs."""
    return Tensor(
        name=f"{owner} adapter",
        term="activations",
        bytes=size,
        birth=At("F", f"{owner}.lora_A{FOR_INPUT}"),
        fwd_end=At("F", f"{owner}.lora_B{FOR_INPUT}"),
        bwd_end=At("B", f"{owner}.lora_B{FOR_WEIGHT}"),
    )


def widened(owner: str, weight: Weight, regions: Mapping[str, Region]) -> tuple[Tensor, Tensor]:
    """A quantised weight in BF16, while its product runs forward and while it runs back."""
    forward, backward = At("F", f"{owner}{FOR_INPUT}"), At("B", f"{owner}{FOR_INPUT}")
    wide = Tensor(
        name=f"{owner} widened",
        term="temporary",
        bytes=BF16 * weight.numel,
        birth=forward,
        fwd_end=forward,
        region=regions[owner],
        per_token=False,
    )
    return wide, replace(wide, birth=backward, fwd_end=None, bwd_end=backward)


def tensor_after(
    tensor: Tensor,
    block: Block,
    backward: tuple[Op, ...],
    found: Mapping[str, Weight],
    chosen: Mapping[str, Weight],
    gone: set[str],
) -> Tensor | None:
    """A tensor without the rows that made gradients of frozen weights; None if only those needed it."""
    late = tensor.weight_end
    if late is not None and late.row in gone:
        owner = late.row.removesuffix(FOR_WEIGHT)
        if tensor.split_only:
            end = At("B", f"{owner}.lora_B{FOR_WEIGHT}")
            return replace(tensor, weight_end=end) if owner in chosen else None
        end = At("B", f"{owner}.lora_A{FOR_WEIGHT}")
        tensor = replace(tensor, weight_end=end if owner in chosen else None)
    if tensor.bwd_end is None or tensor.bwd_end.row not in gone:
        return tensor
    names = [op.name for op in backward]
    ends = [f"{o}.lora_A{FOR_WEIGHT}" for o in readers(tensor, block, found) if o in chosen]
    release = At("B", max(ends, key=names.index)) if ends else None
    return replace(tensor, bwd_end=release, weight_end=None) if tensor.fwd_end else None


def junction_after(junction: Junction, chosen: Mapping[str, Weight], gone: set[str]) -> Junction:
    """A tensor-parallel part whose rows for weights are gone: it ends with the rows that are left."""
    given, handed = junction.input_rows, junction.output_rows
    if given is not None and given[1] in gone:
        owner = given[1].removesuffix(FOR_WEIGHT)
        last = f"{owner}.lora_A{FOR_WEIGHT}" if owner in chosen else f"{owner}{FOR_INPUT}"
        beside = owner.rpartition(".")[0]
        first = [o for o in chosen if o.rpartition(".")[0] == beside and chosen[o].tp_dim == 0]
        again = f"{first[-1]}.lora_A{FOR_WEIGHT}" if first else None
        junction = replace(junction, input_rows=(given[0], last), again=junction.again and again)
    if handed is not None and handed[1] in gone:
        junction = replace(junction, output_rows=(handed[0], None))
    return junction

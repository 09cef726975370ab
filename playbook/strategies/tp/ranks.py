"""Tensor parallelism on real ranks: heads, feed-forward columns and vocabulary are split, tokens are not.

Communicates over tp. Per layer two all-reduces of the activations in forward and two in backward; under
sequence parallelism an all-gather and a reduce-scatter in the place of each. The vocabulary adds one more at
either end of the model, and an all-gather of the logits. Shape suffixes: B batch, S sequence, D hidden, V
vocabulary; S is a rank's share of it between the pairs of sequence parallelism.
"""

# pyright: reportIncompatibleMethodOverride=false
# (an autograd function names its arguments, which the base class does not)

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import embedding

from playbook.models.transformer import Transformer
from playbook.runtime.part import Part, Place, Split
from playbook.spec import Model, Scenario

COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")
"""Split by rows of the weight, that is by output features, or by tokens of the vocabulary."""
ROWS = ("o_proj", "down_proj")
"""Split by columns of the weight, that is by input features."""
KEY_VALUE = ("k_proj", "v_proj")
HEAD_NORMS = ("q_norm", "k_norm")

Move = Callable[[Tensor, Place], Tensor]
Moves = tuple[Move | None, Move | None]


class Pair(torch.autograd.Function):
    """A collective in forward, its mirror image in backward: Megatron's f and g; None is no collective."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Move | None, back: Move | None, tp: Place) -> Tensor:
        """Do the one, remember the other."""
        ctx.back, ctx.tp = back, tp
        return there(x, tp) if there else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Do the other."""
        return (ctx.back(gradient, ctx.tp) if ctx.back else gradient), None, None, None


def all_reduce(x: Tensor, tp: Place) -> Tensor:
    """Sum over the ranks. Shapes: (B, S, D) -> (B, S, D)."""
    dist.all_reduce(total := x.clone(), group=tp.group)
    return total


def all_gather(x: Tensor, tp: Place, dim: int = 1) -> Tensor:
    """Join the ranks' shares. Shapes: (B, S/tp, D) -> (B, S, D)."""
    dist.all_gather(parts := [torch.empty_like(x) for _ in range(tp.ranks)], x.contiguous(), group=tp.group)
    return torch.cat(parts, dim)


def reduce_scatter(x: Tensor, tp: Place) -> Tensor:
    """Sum over the ranks, keep one share. Shapes: (B, S, D) -> (B, S/tp, D)."""
    parts = [part.contiguous() for part in x.chunk(tp.ranks, dim=1)]
    dist.reduce_scatter(own := torch.empty_like(parts[0]), parts, group=tp.group)
    return own


def by_hand(module: Transformer, tp: Place, *, sequence_parallel: bool = False) -> Part:
    """Cut the weights, and put a pair of collectives around whatever computes with a share of them."""
    spread: Moves = (all_gather, reduce_scatter) if sequence_parallel else (None, all_reduce)
    collect: Moves = (spread[1], spread[0])

    def before(layer: nn.Module, pair: Moves) -> None:
        layer.register_forward_pre_hook(lambda _, args: (Pair.apply(args[0], *pair, tp), *args[1:]))

    def after(layer: nn.Module, pair: Moves) -> None:
        layer.register_forward_hook(lambda _, args, output: Pair.apply(output, *pair, tp))

    for block in module.layers.values():
        before(block.self_attn, spread)
        after(block.self_attn.o_proj, collect)
        before(block.mlp, spread)
        after(block.mlp.down_proj, collect)
    module.embed_tokens.forward = partial(look_up, module.embed_tokens.weight, tp)
    after(module.embed_tokens, collect)
    before(module.lm_head, spread)
    after(module.lm_head, (partial(all_gather, dim=-1), own_share))
    for name, weight in module.named_parameters():
        weight.data = own_weight(name, weight, tp, module.spec)
        holders = partial_copies(name, tp, module.spec, sequence_parallel)
        weight.register_hook(partial(sum_over, holders=holders, tp=tp))
    return Part(module=module, split=partial(split_of, tp=tp, spec=module.spec))


BY_HAND = (Pair, all_reduce, all_gather, reduce_scatter, by_hand)
"""What a chapter shows: everything that communicates activations. Cutting weights is plain slicing, below."""


def look_up(weight_VD: Tensor, tp: Place, tokens_BS: Tensor) -> Tensor:
    """Look tokens up in this rank's rows of the table; a token of another rank's rows gives zeros."""
    rows = weight_VD.shape[0]
    hidden_BSD = embedding(tokens_BS % rows, weight_VD)
    return hidden_BSD * (tokens_BS // rows == tp.rank).unsqueeze(-1)


def split_dim(name: str) -> int | None:
    """Dim that a parameter is split in; None if every rank holds it whole."""
    *_, layer, _ = name.split(".")
    if layer in COLUMNS:
        return 0
    return 1 if layer in ROWS else None


def own_share(x: Tensor, tp: Place, dim: int = -1, copies: int = 1) -> Tensor:
    """Return this rank's share of a tensor, when each share is held by `copies` ranks."""
    return x.chunk(tp.ranks // copies, dim)[tp.rank // copies]


def copies_of(name: str, tp: Place, spec: Model) -> int:
    """Ranks that hold the same share of a parameter: several where key-value heads are fewer than ranks."""
    return max(1, tp.ranks // spec.kv_heads) if name.split(".")[-2] in KEY_VALUE else 1


def own_weight(name: str, weight: Tensor, tp: Place, spec: Model) -> Tensor:
    """Return a copy of this rank's share of a parameter."""
    dim = split_dim(name)
    if dim is None:
        return weight.detach()
    return own_share(weight.detach(), tp, dim, copies_of(name, tp, spec)).contiguous().clone()


def partial_copies(name: str, tp: Place, spec: Model, sequence_parallel: bool) -> int:
    """Ranks over which a parameter's gradient has to be summed, as each saw some tokens or heads only."""
    if split_dim(name) is not None:
        return copies_of(name, tp, spec)
    return tp.ranks if sequence_parallel or name.split(".")[-2] in HEAD_NORMS else 1


def sum_over(gradient: Tensor, holders: int, tp: Place) -> Tensor:
    """Sum a gradient over the ranks that hold the same share."""
    if holders == 1:
        return gradient
    if holders == tp.ranks:
        return all_reduce(gradient, tp)
    first = tp.rank // holders * holders
    return all_gather(gradient[None], tp, dim=0)[first : first + holders].sum(0)


def split_of(name: str, tp: Place, spec: Model) -> Split | None:
    """How a parameter is split, for gathering it."""
    dim = split_dim(name)
    if dim is None:
        return None
    shapes = {parameter.name: parameter.shape for parameter in spec.block_parameters()}
    ends = (*spec.embedding_parameters(), *spec.head_parameters())
    shapes |= {parameter.name: parameter.shape for parameter in ends}
    local = name.split(".", 2)[2] if name.startswith("layers.") else name
    return Split(dim=dim, size=shapes[local][dim], copies=copies_of(name, tp, spec))


def by_library(module: Transformer, tp: Place, *, sequence_parallel: bool = False) -> Part:
    """Do the same by DTensor.

    `PrepareModuleInput` hands a module's input on once: without it q, k and v would each reduce its gradient,
    and a layer would have six all-reduces for four.

    Raises
    ------
    ValueError
        If ranks share a GPU: the functional collectives that DTensor uses crash on CUDA tensors over gloo.
    """
    if tp.device.type == "cuda" and not tp.over_nccl:
        raise ValueError("DTensor's collectives crash on CUDA tensors over gloo; use by='hand', or NCCL")
    between = Shard(1) if sequence_parallel else Replicate()
    enter = partial(PrepareModuleInput, desired_input_layouts=(Replicate(), None))
    plan: dict[str, Any] = {
        "embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "layers.*.self_attn": enter(input_layouts=(between, None)),
        "layers.*.self_attn.o_proj": RowwiseParallel(output_layouts=between),
        "layers.*.mlp": PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate()),
        "layers.*.mlp.down_proj": RowwiseParallel(output_layouts=between),
        "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Replicate()),
    }
    plan |= {f"layers.*.self_attn.{x}_proj": ColwiseParallel() for x in "qkv"}
    plan |= {f"layers.*.mlp.{x}_proj": ColwiseParallel() for x in ("gate", "up")}
    if sequence_parallel:
        norms = ("layers.*.input_layernorm", "layers.*.post_attention_layernorm", "norm")
        plan |= {name: SequenceParallel() for name in norms}
    if module.spec.qk_norm:  # of (B, S, H, K) each rank norms its own heads, so gradients are partial sums
        heads = SequenceParallel(sequence_dim=2, use_local_output=True)
        plan |= {f"layers.*.self_attn.{x}_norm": heads for x in "qk"}
    absent = [name for name in ("embed_tokens", "norm", "lm_head") if getattr(module, name) is None]
    parallelize_module(module, tp.mesh, {name: how for name, how in plan.items() if name not in absent})
    if module.spec.tied:
        module.lm_head.weight = module.embed_tokens.weight
    if sequence_parallel and module.embed_tokens is None:
        module.input_shares = tp.ranks
    return Part(module=module)


def keywords(scenario: Scenario, own: Mapping[str, Any], by_hand: bool) -> dict[str, Any]:
    """Levers of both for a scenario."""
    return {"sequence_parallel": scenario.layout.sequence_parallel}


def one_column_right(own_weight: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Take the columns of `down_proj` one to the right of the right ones."""

    def take(name: str, weight: Tensor, tp: Place, spec: Model) -> Tensor:
        return own_weight(name, weight.roll(-1, 1) if "down_proj" in name else weight, tp, spec)

    return take


WRONG_OFFSET = ("own_weight", one_column_right)
"""What says where a rank's share lies, and what makes it wrong: a planted fault."""

"""What rounding shards to whole rows costs: FSDP2 cuts along dim 0, which for experts is their number."""

from collections import Counter

from playbook.frameworks import policy
from playbook.spec import Model, Scenario
from playbook.units import counted

SHARDS_ALL = 3
"""ZeRO stage that shares parameters too."""


def uneven_rows(s: Scenario) -> tuple[int, int] | None:
    """Rows of an expert tensor and the ranks that share them, where these do not divide those; else None."""
    moe, layout = s.model.moe, s.layout
    if moe is None or not policy(s.framework).pads_rows:
        return None
    rows, ranks = moe.experts // layout.ep, layout.expert_shard_ranks
    return (rows, ranks) if rows % ranks else None


def padded_experts(s: Scenario) -> str:
    """Say that ranks do not divide the rows of expert tensors, in words; else nothing.

    Examples
    --------
    >>> import playbook as pb
    >>> padded_experts(pb.Scenario(pb.model("mixtral-8x7b"), layout=pb.Layout(dp=64, zero=3)))
    ''
    """
    uneven = uneven_rows(s)
    if uneven is None or s.layout.zero < SHARDS_ALL:
        return ""
    rows, ranks = uneven
    each = -(-rows // ranks)
    return (
        f"expert tensors have {counted(rows, 'row')} (dim 0), which {ranks} ranks do not divide: a "
        f"shard is {each} of {rows}, not 1/{ranks}, and a gathered buffer has {each * ranks} rows; shard "
        "another dim (`shard_placement_fn` of `fully_shard`), or use ranks that divide the rows"
    )


def largest_share(s: Scenario) -> float:
    """What the rank with most holds of the model's state under ZeRO stage 3, over an even share.

    Notes
    -----
    Only experts are taken to be uneven: other tensors have far more rows than there are ranks.

    Examples
    --------
    8 experts on 64 ranks: the first 8 hold one of each, nearly 8 times an even share.

    >>> import playbook as pb
    >>> layout = pb.Layout(dp=64, zero=3)
    >>> s = pb.Scenario(pb.model("mixtral-8x7b"), layout=layout, framework="transformers")
    >>> round(largest_share(s), 2)
    7.76
    """
    uneven, layout = uneven_rows(s), s.layout
    if uneven is None:
        return 1.0
    rows, ranks = uneven
    of_experts = expert_parameters(s.model)
    routed = of_experts / (layout.ep * layout.etp)
    others = (s.model.parameters - of_experts) / layout.tp
    even = others / layout.shard_ranks + routed / ranks
    return (others / layout.shard_ranks + routed * -(-rows // ranks) / rows) / even


def expert_parameters(model: Model) -> int:
    """Elements of all routed experts."""
    layers = Counter(model.kind_of(layer) for layer in range(model.layers))
    return sum(
        times * sum(p.numel for p in model.block_parameters(kind) if p.expert)
        for kind, times in layers.items()
    )

"""What rounding shards to whole rows costs: FSDP2 cuts along dim 0, which for experts is their number."""

from playbook.frameworks import policy
from playbook.spec import Scenario
from playbook.units import counted

SHARDS_ALL = 3
"""ZeRO stage that shares parameters too."""


def padded_experts(s: Scenario) -> str:
    """Say that ranks do not divide the rows of expert tensors, in words; else nothing.

    Examples
    --------
    >>> import playbook as pb
    >>> padded_experts(pb.Scenario(pb.model("mixtral-8x7b"), layout=pb.Layout(dp=64, zero=3)))
    ''
    """
    moe, layout = s.model.moe, s.layout
    if moe is None or layout.zero < SHARDS_ALL or not policy(s.framework).pads_rows:
        return ""
    rows, ranks = moe.experts // layout.ep, layout.expert_shard_ranks
    each = -(-rows // ranks)
    if rows % ranks == 0:
        return ""
    return (
        f"expert tensors have {counted(rows, 'row')} (dim 0), which {ranks} ranks do not divide: a "
        f"shard is {each} of "
        f"{rows}, not 1/{ranks}, and a gathered buffer has {each * ranks} rows; shard another dim "
        "(`shard_placement_fn` of `fully_shard`), or use ranks that divide the rows"
    )

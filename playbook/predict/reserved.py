"""What PyTorch's caching allocator holds beyond what it has handed out: a band, by what a step asks it for.

Blocks are kept for the stream and the size that asked for them. Under FSDP2 the unit of embedding and head is
gathered, flattened, differentiated and reduced in FP32 in tensors as large as itself, on streams of their
own; much smaller layers find room in their blocks, others, as those of many experts, have their own. The loss
leaves room of the size of its FP32 logits. All that does not depend on the number of ranks, so the share of
the peak does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from playbook.frameworks import policy
from playbook.spec import Parameter, Scenario

FSDP2 = ("torch", "transformers")
"""Frameworks whose ZeRO-3 is PyTorch's FSDP2."""

ROOT_BYTES = (4, 8)
"""Least and most bytes held unused per parameter of embedding and head."""

LOGIT_BYTES = (0, 8)
"""The same per logit of a micro-batch."""

LAYER_BYTES = 10
"""Most bytes per parameter of a layer that finds no room there: gathered twice and its gradient in BF16, and
an FP32 copy of the gradient, which is all that FSDP2 makes of a unit with BF16 compute."""

SMALL = 0.5
"""A layer with less than so much of the parameters of embedding and head finds room."""

REPLICAS = (0.02, 0.28)
"""Least and most part of the peak where PyTorch gathers nothing: 3 to 26 % in 30 twins."""

SHARED_STATE = (0.02, 0.40)
"""The same where replicas share the optimizer's state: 3, 19 and 29 % in three twins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """A band of bytes, and what its upper end is made of in words."""

    low_bytes: int
    high_bytes: int
    formula: str


def unused_of(s: Scenario, peak_bytes: int) -> Unused:
    """Return what the allocator may hold beyond a peak.

    Parameters
    ----------
    s
        The scenario.
    peak_bytes
        Its predicted peak on the worst rank.

    Notes
    -----
    The numbers of embedding and head were read off 20 twins on an H200 (`gpu_twin.json` of the benchmarks),
    whose unused memory was 13 to 117 % of the peak. Of 36 twins that came later 29 lay within at once; the
    others told of layers that are no smaller than embedding and head, and that replicas may leave 3 % only.
    Of five pipelines under sequence parallelism one left 26 % where the band ended at 25 %.
    Three earlier steps on another such machine lie within too. Unused blocks are given back when memory is
    short, so a step may fit where the band says it does not.
    """
    rules = policy(s.framework)
    if s.framework in FSDP2 and s.layout.zero == 3:  # noqa: PLR2004  # the stage's number
        return sharded(s)
    low, high = rules.reserved_share
    if s.framework == "torch":
        low, high = SHARED_STATE if s.layout.zero else REPLICAS
    return Unused(
        low_bytes=int(low * peak_bytes), high_bytes=int(high * peak_bytes), formula=f"{high:g} of the peak"
    )


def sharded(s: Scenario) -> Unused:
    """The band under FSDP2."""
    root, logits, beside = root_parameters(s), logits_of(s), unit_of_layer(s)
    low, high = (
        root_bytes * root + logit_bytes * logits
        for root_bytes, logit_bytes in zip(ROOT_BYTES, LOGIT_BYTES, strict=True)
    )
    words = f"{ROOT_BYTES[1]} B a weight of embedding and head, {LOGIT_BYTES[1]} B a logit"
    if beside >= SMALL * root:
        high += LAYER_BYTES * beside
        words += f", {LAYER_BYTES} B a weight of one layer, which finds no room there"
    return Unused(low_bytes=low, high_bytes=high, formula=words)


def unit_of_layer(s: Scenario) -> int:
    """Parameters of a rank's largest layer once it is gathered, with the rows that shards are padded by."""
    model = s.model
    return max(sum(gathered(s, p) for p in model.block_parameters(kind)) for kind in model.kinds)


def gathered(s: Scenario, weight: Parameter) -> int:
    """Elements of a gathered weight on one rank: equal shards of whole rows."""
    layout = s.layout
    if not weight.expert:
        parts = layout.tp if weight.tp_dim is not None else 1
        return weight.numel // parts
    rows, ranks = weight.shape[0] // layout.ep, layout.expert_shard_ranks
    return -(-rows // ranks) * ranks * math.prod(weight.shape[1:]) // layout.etp


def root_parameters(s: Scenario) -> int:
    """Parameters of the unit outside the layers on one rank: of both ends, or of the larger in a pipeline."""
    ends = [
        sum(p.numel for p in part) for part in (s.model.embedding_parameters(), s.model.head_parameters())
    ]
    whole = max(ends) if s.layout.pp > 1 else sum(ends)
    return whole // s.layout.tp


def logits_of(s: Scenario) -> int:
    """Logits of a micro-batch on one rank."""
    return s.workload.micro_batch * s.workload.sequence // s.layout.cp * s.model.vocabulary

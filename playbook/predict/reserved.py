"""What PyTorch's caching allocator holds beyond what it has handed out: a band, by what a step asks it for.

Blocks are kept for the stream and the size that asked for them. Under FSDP2 the unit of embedding and head is
gathered, flattened, differentiated and reduced in FP32 in tensors as large as itself, on streams of their
own; nothing else fits into their blocks while layers are smaller. The loss leaves room of the size of its
FP32 logits. Both do not depend on the number of ranks, so the share of the peak does.
"""

from __future__ import annotations

from dataclasses import dataclass

from playbook.frameworks import policy
from playbook.spec import Scenario

FSDP2 = ("torch", "transformers")
"""Frameworks whose ZeRO-3 is PyTorch's FSDP2."""

ROOT_BYTES = (4, 8)
"""Least and most bytes held unused per parameter of embedding and head."""

LOGIT_BYTES = (0, 8)
"""The same per logit of a micro-batch."""

REPLICAS = (0.03, 0.25)
"""Least and most part of the peak where PyTorch gathers nothing: 3 to 23 % in eleven twins."""


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
    The two numbers for FSDP2 were read off 20 twins on an H200 (`gpu_twin.json` of the benchmarks), whose
    unused memory was 13 to 117 % of the peak and lies within; three earlier steps on another such machine do
    too. Unused blocks are given back when memory is short, so a step may fit where the band says it does not.
    """
    rules = policy(s.framework)
    if s.framework in FSDP2 and s.layout.zero == 3:  # noqa: PLR2004  # the stage's number
        return sharded(s)
    plain = s.framework == "torch" and s.layout.zero == 0
    low, high = REPLICAS if plain else rules.reserved_share
    return Unused(
        low_bytes=int(low * peak_bytes), high_bytes=int(high * peak_bytes), formula=f"{high:g} of the peak"
    )


def sharded(s: Scenario) -> Unused:
    """The band under FSDP2."""
    root, logits = root_parameters(s), logits_of(s)
    low, high = (
        root_bytes * root + logit_bytes * logits
        for root_bytes, logit_bytes in zip(ROOT_BYTES, LOGIT_BYTES, strict=True)
    )
    words = f"{ROOT_BYTES[1]} B a weight of embedding and head, {LOGIT_BYTES[1]} B a logit"
    return Unused(low_bytes=low, high_bytes=high, formula=words)


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

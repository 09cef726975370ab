"""Which ranks share the state of a weight: experts have other peers than dense weights.

Dense state is shared among dp · cp / dp_replicate ranks; the context-parallel ranks are among them, since
each saw other tokens with the same weights. An expert's is shared among the ranks that hold the same experts,
dp · cp · tp / (etp · ep · dp_replicate). Both groups communicate on axis "dp", copies of them on
"dp_replicate".
"""

from dataclasses import dataclass

from playbook.program.block import Weight
from playbook.program.op import Op, Size
from playbook.program.policy import Context

EXPERTS = "mlp.experts"
"""Owner of the collectives of experts' state, where they are others than the layer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Weights of one unit that the same ranks share.

    Parameters
    ----------
    weights
        The weights.
    ranks
        Ranks that share them, inside a replica.
    symbol
        What stands for that number in formulas.
    expert
        Whether they are experts' that have peers of their own.
    """

    weights: tuple[Weight, ...]
    ranks: int
    symbol: str
    expert: bool = False

    def collective(self, op: str, phase: str, payload: Size, **fields: object) -> Op:
        """One collective of the unit over the ranks that share it."""
        owner, ranks = (EXPERTS, self.ranks) if self.expert else ("", 0)
        return Op(owner=owner, op=op, phase=phase, axis="dp", payload=payload, ranks=ranks, **fields)  # type: ignore[arg-type]


def groups(weights: tuple[Weight, ...], ctx: Context) -> tuple[Group, ...]:
    """Sort weights by who shares them: one group, or dense weights and experts."""
    experts = tuple(weight for weight in weights if weight.expert)
    if not experts or not ctx.experts_apart:
        return (Group(weights=weights, ranks=ctx.shard, symbol="N"),) if weights else ()
    dense = tuple(weight for weight in weights if not weight.expert)
    apart = Group(weights=experts, ranks=ctx.expert_shard, symbol="Ne", expert=True)
    return (*groups(dense, ctx), apart)

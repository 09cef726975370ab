"""Rates of a scenario's cluster: data-sheet numbers times the part of them that code reaches."""

from playbook.program.rates import Rates
from playbook.spec import Scenario

PRODUCT_EFFICIENCY = (0.60, 0.75, 0.80)
"""Part of the dense peak that products reach: low, likely, high. BF16 products of 4096 to 16384 reached 688
to 790 of 989 TFLOP/s on an H200 (torch 2.11)."""

MEMORY_EFFICIENCY = (0.50, 0.70, 0.85)
"""Part of the memory bandwidth that elementwise rows reach: assumed, not measured here."""


def rates_of(
    s: Scenario, product: float = PRODUCT_EFFICIENCY[1], memory: float = MEMORY_EFFICIENCY[1]
) -> Rates:
    """Rates of a scenario's cluster at given efficiencies; a group's link is that of the ranks it spans."""
    layout, gpu = s.layout, s.cluster.gpu
    whole, inner = layout.world // layout.pp, layout.tp * layout.cp
    among = inner if layout.ep_rule == "independent" else layout.etp
    spans = {"tp": layout.tp, "cp": inner, "ep": layout.ep * among}
    spans |= {"dp": whole // layout.dp_replicate, "dp_replicate": whole, "pp": min(2 * whole, s.world)}
    return Rates(
        flops_per_s=product * gpu.flops_of(s.recipe.compute_dtype),
        memory_bytes_per_s=memory * gpu.memory_bytes_per_s,
        links={axis: s.cluster.link(span) for axis, span in spans.items()},
    )

"""How fast a device computes and communicates."""

from collections.abc import Mapping
from dataclasses import dataclass

from playbook.spec import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast a device computes and communicates.

    Parameters
    ----------
    flops_per_s
        Rate of products.
    memory_bytes_per_s
        Rate at which other rows move their results.
    links
        Slowest link of each axis's group.
    """

    flops_per_s: float
    memory_bytes_per_s: float
    links: Mapping[str, Link]

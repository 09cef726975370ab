"""Names that rows of a program index instead of carrying them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names that rows index: owners, operations with their axis, streams."""

    owners: dict[str, int]
    ops: dict[str, int]
    streams: dict[str, int]

    @classmethod
    def none(cls) -> "Names":
        """No names yet but that of the compute stream."""
        return cls(owners={}, ops={}, streams={"compute": 0})


def code(table: dict[str, int], text: str) -> int:
    """Index of a name, a new one if it is not there yet."""
    return table.setdefault(text, len(table))

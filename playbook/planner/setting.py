"""What an order is searched for: stages, their costs, the way between them, and the memory of each rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from playbook.spec.rules import whole
from playbook.units import counted

Cost = float | Sequence[float]
"""One number for all places, or one for each."""

COPIES = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A pipeline without an order; numbers are settled when it is made by `Setting.of`."""

    ranks: int
    microbatches: int
    chunks: int
    """Stages of the model on each rank."""
    forward: tuple[float, ...]
    """Cost of each of the p · v stages, in any one unit."""
    backward_input: tuple[float, ...]
    backward_weight: tuple[float, ...]
    backward: tuple[float, ...]
    """Cost of a fused backward of each stage."""
    comm: tuple[float, ...]
    """Delay over the border between stages s and s + 1, if they are on different ranks."""
    cap: tuple[int, ...] | None
    """Most stage-chunks alive on each rank, from the start of F to the end of W or of a fused B."""
    split: bool
    """Whether a backward may be run in two parts."""
    copies: int
    """Most copies of the model's stages that the ranks may hold together."""

    @classmethod
    def of(
        cls,
        *,
        stages: int,
        microbatches: int,
        chunks: int,
        forward: Cost,
        backward_input: Cost,
        backward_weight: Cost,
        backward: Cost | None,
        comm: Cost,
        memory_cap: int | Sequence[int] | None,
        split: bool,
        copies: int,
    ) -> Setting:
        """Settle what a caller gives.

        Raises
        ------
        ValueError, TypeError
            If a number is out of range or of the wrong kind, or no order keeps within the cap.
        """
        p, v = whole("stages", stages), whole("chunks", chunks)
        parts = [
            each(name, cost, p * v, "stages")
            for name, cost in (("backward_input", backward_input), ("backward_weight", backward_weight))
        ]
        if whole("copies", copies) not in COPIES:
            raise ValueError(f"copies={copies}; use 1, or 2 to try bidirectional orders too")
        return cls(
            ranks=p,
            microbatches=whole("microbatches", microbatches),
            chunks=v,
            forward=each("forward", forward, p * v, "stages"),
            backward_input=parts[0],
            backward_weight=parts[1],
            backward=tuple(i + w for i, w in zip(*parts, strict=True))
            if backward is None
            else each("backward", backward, p * v, "stages"),
            comm=each("comm", comm, p * v - 1, "borders between stages"),
            cap=_cap(memory_cap, p, v),
            split=split,
            copies=copies,
        )

    @property
    def depth(self) -> int:
        """Stages that a micro-batch passes."""
        return self.ranks * self.chunks


def each(name: str, cost: Cost, count: int, places: str) -> tuple[float, ...]:
    """Return one cost for each place, from one number or from a sequence."""
    values = _listed(cost, count)
    if len(values) != count:
        raise ValueError(
            f"{name} has {counted(len(values), 'value')} for {count} {places}; give one number, or {count}"
        )
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise TypeError(f"{name}={value!r} must be a number of at least 0")
        if not 0 <= float(value) < math.inf:
            raise ValueError(f"{name}={value} must be at least 0 and finite")
    return tuple(float(value) for value in values)


def _listed(given: Any, count: int) -> tuple[Any, ...]:
    """One value for each place; lists and arrays have their own, a text is one value (and refused)."""
    listed = hasattr(given, "__len__") and not isinstance(given, str | bytes)
    return tuple(given) if listed else (given,) * count


def _cap(given: int | Sequence[int] | None, ranks: int, chunks: int) -> tuple[int, ...] | None:
    """Cap of each rank.

    A micro-batch is alive on every stage when its loss is taken, so a rank needs room for all its chunks of
    it; with that, micro-batches can pass one after the other.
    """
    if given is None:
        return None
    caps = _listed(given, ranks)
    if len(caps) != ranks:
        raise ValueError(
            f"memory_cap has {counted(len(caps), 'number')} for {counted(ranks, 'rank')}; give one "
            f"number, or {ranks}"
        )
    caps = tuple(_whole_cap(cap, chunks) for cap in caps)
    if min(caps) < chunks:
        rank = caps.index(min(caps))
        raise ValueError(
            f"memory_cap={caps[rank]} on rank {rank}: a micro-batch alone has {chunks} stage-chunks alive "
            f"there when its loss is taken; use {chunks} or more"
        )
    return caps


def _whole_cap(given: Any, chunks: int) -> int:
    """A cap of one rank: stage-chunks are whole, so a fraction is refused with the whole ones beside it."""
    if isinstance(given, float) and math.isfinite(given):
        low, high = max(chunks, math.floor(given)), max(chunks, math.ceil(given))
        near = f"{low}" if low == high else f"{low} or {high}"
        raise TypeError(f"memory_cap={given!r} counts stage-chunks, which are whole numbers; use {near}")
    try:
        return whole("memory_cap", given)
    except TypeError:
        raise TypeError(
            f"memory_cap={given!r} must be a whole number of stage-chunks, or one a rank; use "
            f"memory_cap={chunks} or more"
        ) from None

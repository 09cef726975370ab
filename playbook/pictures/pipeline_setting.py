"""What a picture of pipelines is drawn for: size, costs, cut into stages, a slow rank; read as people write
it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from playbook.pictures.words import short

CUTS = ("equal", "heavy head", "own")
"""Ways to say what the stages cost; with a model also "balanced", whose layers `pb.cut_stages` shares out."""

HEAD = 0.5
"""Extra cost of the last stage in the heavy head example, in shares of a rank: the head of a model with a
large vocabulary, on top of an equal share of the layers."""

_STRAGGLER = re.compile(r"\s*(?:rank\s*)?(\d+)\s*(?:×|x|\*|:|,|\s)\s*([\d.]+)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Cost of a rank's whole share of a micro-batch, in units; a chunk costs 1/v of it."""

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0
    latency: float = 0.0
    """Delay of one hop between ranks, in the same unit."""
    overlap: float = 1.0
    """Cost of a forward and a backward at the same time, as a part of their sum."""
    recompute: bool = False
    """Whether backward runs the forward again."""

    def __post_init__(self) -> None:
        least = self.least_overlap
        if not least - 1e-9 <= self.overlap <= 1:
            raise ValueError(
                f"overlap={self.overlap:g}: a pair takes at least as long as the longer of its two, "
                f"max(F, B)/(F + B) = {least:.3g}, and at most F + B; "
                f"use {math.ceil(100 * least - 1e-7) / 100:g} to 1"
            )
        if not (math.isfinite(self.latency) and self.latency >= 0):
            raise ValueError(f"latency={self.latency:g}: use 0 or more units a hop")

    @classmethod
    def parse(cls, text: str, latency: float = 0.0, overlap: float = 1.0, recompute: bool = False) -> Costs:
        """Read "F : I : W", such as "1:1:1" or "1 : 1.2 : 0.8".

        Raises
        ------
        ValueError
            If it is not three numbers, 0 or more, with F above 0.
        """
        values = _numbers(text.replace(",", ":").split(":"))
        if len(values) != 3 or min(values) < 0 or values[0] <= 0:
            raise ValueError(f"costs={text!r}: give F : I : W as three numbers, F above 0, such as 1:1:1")
        forward, backward_input, backward_weight = values
        return cls(
            forward=forward,
            backward_input=backward_input,
            backward_weight=backward_weight,
            latency=latency,
            overlap=overlap,
            recompute=recompute,
        )

    @property
    def backward(self) -> float:
        """Cost of a whole backward, with what is computed again."""
        return self.backward_input + self.backward_weight + self.again

    @property
    def least_overlap(self) -> float:
        """Shortest that an overlapped pair can be, as a part of F + B: the longer of the two."""
        return max(self.forward, self.backward) / (self.forward + self.backward)

    @property
    def again(self) -> float:
        """Cost of what backward computes again."""
        return self.forward if self.recompute else 0.0


def _numbers(parts: list[str]) -> list[float]:
    try:
        values = [float(part) for part in parts]
    except ValueError:
        return []
    return values if all(map(math.isfinite, values)) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What each stage costs, whatever the number of stages that a schedule cuts the model into."""

    parts: tuple[float, ...] = (1.0,)
    """Cost of each of so many equal lengths of the model, against that of an average one."""
    head: float = 0.0
    """What the last stage costs on top, in shares of a rank."""

    @classmethod
    def parse(cls, name: str, numbers: str = "") -> Cut:
        """Read a cut by its name; `numbers` are the costs of the stages for "own".

        Raises
        ------
        ValueError
            For another name, or numbers that are none.
        """
        if name == "own":
            values = _numbers(numbers.replace(",", " ").split())
            if not values or min(values) <= 0:
                raise ValueError(
                    f"stage_costs={numbers!r}: give the cost of each stage, all above 0, such as 1 1 1 1.5"
                )
            return cls(parts=tuple(values))
        if name not in CUTS:
            raise ValueError(f"cut={name!r}: use one of {', '.join(CUTS)}")
        return cls(head=HEAD if name == "heavy head" else 0.0)

    @property
    def even(self) -> bool:
        """Whether all stages cost the same."""
        return not self.head and min(self.parts) == max(self.parts)

    def shares(self, depth: int, ranks: int) -> list[float]:
        """Cost of each of `depth` stages against that of an average one.

        A stage costs what its length of the model does, so two schedules of one model with other numbers of
        stages do the same work.

        Examples
        --------
        >>> Cut(parts=(1.0, 1.0, 1.0, 2.0)).shares(2, 2)
        [1.0, 1.5]
        >>> Cut(head=0.5).shares(4, 2)
        [1.0, 1.0, 1.0, 2.0]
        """
        length = len(self.parts) / depth
        shares = [self._between(stage * length, (stage + 1) * length) / length for stage in range(depth)]
        shares[-1] += self.head * depth / ranks
        return shares

    def _between(self, low: float, high: float) -> float:
        return sum(
            part * max(0.0, min(high, place + 1) - max(low, place)) for place, part in enumerate(self.parts)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything that decides a picture but which schedules it shows."""

    stages: int = 4
    """Pipeline ranks p."""
    microbatches: int = 8
    """Micro-batches m."""
    chunks: int = 2
    """Chunks v of a rank, for the schedules that take several."""
    costs: Costs = field(default_factory=Costs)
    cut: Cut = field(default_factory=Cut)
    straggler: tuple[int, float] | None = None
    """A slow rank, and by what factor."""
    cap: float = 0.0
    """Most that a rank may hold, in activations of one micro-batch's whole share (A); 0 for no limit."""

    @property
    def plain(self) -> bool:
        """Whether a textbook formula may hold: equal stages, equal ranks, no latency."""
        return self.cut.even and self.straggler is None and self.costs.latency == 0

    @property
    def unequal(self) -> str:
        """Why no textbook formula can hold, in words; empty if one may."""
        reasons = (
            (not self.cut.even, "equal stages"),
            (self.straggler is not None, "ranks of one speed"),
            (self.costs.latency > 0, "no latency"),
        )
        return " and ".join(words for found, words in reasons if found)


def parse_straggler(text: str, ranks: int) -> tuple[int, float] | None:
    """Read a slow rank and its factor, such as "2 × 1.5"; None for an empty text.

    Examples
    --------
    >>> parse_straggler("2 x 1.5", 4), parse_straggler("", 4)
    ((2, 1.5), None)

    Raises
    ------
    ValueError
        If it says something else, or names a rank that is not there.
    """
    if not text.strip():
        return None
    found = _STRAGGLER.fullmatch(text)
    factor = _numbers([found[2]]) if found else []
    if found is None or not factor or factor[0] < 1:
        raise ValueError(f"straggler={text!r}: give a rank and how many times slower it is, such as 2 × 1.5")
    if int(found[1]) >= ranks:
        raise ValueError(f"straggler={text!r}: there is no rank {found[1]}; use 0 to {ranks - 1}")
    return int(found[1]), factor[0]


def cost_words(costs: Costs) -> str:
    """F : I : W as text."""
    return " : ".join(short(value) for value in (costs.forward, costs.backward_input, costs.backward_weight))

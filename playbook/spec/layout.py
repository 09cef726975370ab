"""How ranks share the work: parallel degrees, their order, and the schedule."""

import math
from dataclasses import dataclass

from playbook.spec.rules import choice, divisors, flag, settle, whole

DEGREES = ("dp", "tp", "pp", "cp", "ep", "etp", "dp_replicate")
V_SCHEDULES = ("zbv", "v-half", "v-min", "dualpipe-v")
ONE_CHUNK = ("gpipe", "1f1b", "zb-h1", "zb-h2", "dualpipe")
SCHEDULES = (
    *("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "interleaved-zero-bubble"),
    *("zbv", "v-half", "v-min", "dualpipe", "dualpipe-v"),
)
CHOICES = {
    "ep_rule": ("folded", "independent"),
    "cp_method": ("ring", "all-gather", "ulysses"),
    "cp_split": ("contiguous", "zigzag"),
    "routing": ("dropless", "capacity"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Parallel degrees and how they are applied.

    Parameters
    ----------
    dp, tp, pp, cp, ep
        Data, tensor, pipeline, context and expert parallel degrees. `dp` leaves CP ranks out.
    zero
        ZeRO stage 0 to 3: data-parallel ranks share nothing, optimizer state, gradients too, parameters too.
    sequence_parallel
        Split the norms' activations along the sequence inside the TP group (Megatron style).
    schedule
        Pipeline schedule, or the path of a CSV file with one.
    chunks
        Model chunks a pipeline rank holds; None is 1, and 2 for V-shaped schedules.
    dp_replicate
        Replicas among the `dp` ranks (HSDP): state is shared inside each and copied between them.
    ep_rule
        "folded": EP re-cuts ranks that exist (ep divides dp · cp · tp / etp); "independent": it is a factor
        of the world, whose ranks have the same tokens and other experts.
    etp
        Tensor parallel degree inside an expert.
    reshard
        Free gathered parameters after forward (ZeRO-3); if not, they stay until backward.
    stage_layers
        Layers of each stage in order of depth (pp · chunks numbers), or None for equal stages.
    cp_method, cp_split
        How keys and values travel under CP, and how the sequence is cut.
    routing
        Whether a mixture of experts drops tokens over capacity.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    chunks: int | None = None
    dp_replicate: int = 1
    ep_rule: str = "folded"
    etp: int = 1
    reshard: bool = True
    stage_layers: tuple[int, ...] | None = None
    cp_method: str = "ring"
    cp_split: str = "zigzag"
    routing: str = "dropless"

    def __post_init__(self) -> None:
        for name in DEGREES:
            settle(self, **{name: whole(name, getattr(self, name))})
        settle(self, zero=whole("zero", self.zero, least=0))
        if self.zero > 3:
            raise ValueError(f"zero={self.zero} is not a ZeRO stage; stages are 0, 1, 2 and 3")
        for name in ("sequence_parallel", "reshard"):
            flag(name, getattr(self, name))
        for name, valid in CHOICES.items():
            settle(self, **{name: choice(name, getattr(self, name), valid)})
        self._settle_schedule()
        self._settle_stage_layers()
        self._check_groups()

    def _settle_schedule(self) -> None:
        if not (isinstance(self.schedule, str) and self.schedule.endswith(".csv")):
            settle(self, schedule=choice("schedule", self.schedule, SCHEDULES))
        default = 2 if self.schedule in V_SCHEDULES else 1
        chunks = whole("chunks", default if self.chunks is None else self.chunks)
        settle(self, chunks=chunks)
        if self.schedule in ONE_CHUNK and chunks > 1:
            several = ", ".join(name for name in SCHEDULES if name not in ONE_CHUNK)
            raise ValueError(
                f"chunks={chunks} but schedule {self.schedule} holds one chunk a rank; "
                f"use chunks=1 or one of {several}"
            )
        if self.schedule in V_SCHEDULES and chunks != 2:
            raise ValueError(f"chunks={chunks} but schedule {self.schedule} is shaped like a V; use chunks=2")

    def _settle_stage_layers(self) -> None:
        if self.stage_layers is None:
            return
        counts = tuple(whole("stage_layers", count) for count in self.stage_layers)
        settle(self, stage_layers=counts)
        if len(counts) != self.stages:
            raise ValueError(
                f"stage_layers has {len(counts)} numbers but pp={self.pp} x chunks={self.chunks} = "
                f"{self.stages} stages; give {self.stages} numbers"
            )

    def _check_groups(self) -> None:
        if self.dp % self.dp_replicate:
            raise ValueError(
                f"dp_replicate={self.dp_replicate} does not divide dp={self.dp}; "
                f"use one of {', '.join(map(str, divisors(self.dp)))}"
            )
        ranks = self.dp * self.cp * self.tp
        inside = ranks // self.dp_replicate
        folded = self.ep_rule == "folded"
        parts = f"ep={self.ep} x etp={self.etp}" if folded else f"etp={self.etp}"
        if ranks % self._expert_parts:
            raise ValueError(
                f"{parts} does not divide dp={self.dp} x cp={self.cp} x tp={self.tp} = {ranks}, as "
                f"ep_rule={self.ep_rule} asks; {self._parts_of(ranks)}"
            )
        if inside % self._expert_parts:
            raise ValueError(
                f"{parts} does not divide the {inside} ranks of one of dp_replicate={self.dp_replicate} "
                f"replicas; {self._parts_of(inside)}, or fewer replicas"
            )

    @property
    def _expert_parts(self) -> int:
        return self.etp * (self.ep if self.ep_rule == "folded" else 1)

    def _parts_of(self, ranks: int) -> str:
        works = ", ".join(map(str, divisors(ranks)))
        return f"use etp=1 and ep in {works}" if self.ep_rule == "folded" else f"use etp in {works}"

    @property
    def stages(self) -> int:
        """Stages that the model is cut into: pp times the chunks of a rank; copies do not count."""
        return self.pp * (self.chunks or 1)

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Mesh axes and degrees, innermost first; an independent expert axis lies between cp and dp."""
        expert = (("ep", self.ep),) if self.ep_rule == "independent" else ()
        return (("tp", self.tp), ("cp", self.cp), *expert, ("dp", self.dp), ("pp", self.pp))

    @property
    def world(self) -> int:
        """Ranks of the whole job."""
        return math.prod(degree for _, degree in self.axes)

    @property
    def shard_ranks(self) -> int:
        """Ranks that dense model state is shared among: dp · cp / dp_replicate."""
        return self.dp * self.cp // self.dp_replicate

    @property
    def expert_shard_ranks(self) -> int:
        """Ranks that an expert's state is shared among: dp · cp · tp / (etp · ep · dp_replicate).

        An independent `ep` is a factor of its own, which the others do not contain.
        """
        return self.dp * self.cp * self.tp // (self._expert_parts * self.dp_replicate)

    @property
    def group_sizes(self) -> dict[str, int]:
        """Ranks that communicate with each other on each axis; on dp those that share dense state."""
        found = {"tp": self.tp, "cp": self.cp, "ep": self.ep, "dp": self.shard_ranks, "pp": self.pp}
        return {**found, "dp_replicate": self.dp_replicate}

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return a rank's place on each mesh axis.

        Examples
        --------
        >>> Layout(dp=2, tp=4, pp=2).coordinates(13)
        {'tp': 1, 'cp': 0, 'dp': 1, 'pp': 1}
        """
        rest = whole("rank", rank, least=0)
        if rest >= self.world:
            raise ValueError(
                f"rank={rank} but the world has {self.world} rank{'s' * (self.world > 1)}; use 0 to "
                f"{self.world - 1}"
            )
        place = {}
        for axis, degree in self.axes:
            rest, place[axis] = divmod(rest, degree)
        return place

    def rank(self, **place: int) -> int:
        """Return the rank at a place; axes left out are 0.

        Examples
        --------
        >>> Layout(dp=2, tp=4, pp=2).rank(tp=1, dp=1, pp=1)
        13
        """
        rank, stride, left = 0, 1, dict(place)
        for axis, degree in self.axes:
            index = whole(axis, left.pop(axis, 0), least=0)
            if index >= degree:
                raise ValueError(f"{axis}={index} but the axis has {degree} places; use 0 to {degree - 1}")
            rank, stride = rank + index * stride, stride * degree
        if left:
            raise ValueError(
                f"no axis {next(iter(left))!r}; axes are {', '.join(axis for axis, _ in self.axes)}"
            )
        return rank

    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """Return the ranks that share every coordinate of `rank` but the one on `axis`, in order."""
        place, degrees = self.coordinates(rank), dict(self.axes)
        choice("axis", axis, degrees)
        return tuple(self.rank(**{**place, axis: index}) for index in range(degrees[axis]))

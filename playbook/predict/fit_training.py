"""What can be varied in a training scenario, and what would make it fit where nothing of it does."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from playbook.predict.fit_search import Tried
from playbook.predict.memory import driver_terms
from playbook.predict.reserved import unused_of
from playbook.predict.stages import program_of, rank_memories
from playbook.spec import Cluster, Model, Scenario, cluster
from playbook.spec.degrees import ranks_for_experts
from playbook.spec.rules import divisors

MOST_GPUS = 2**17
"""Ranks that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Values of one field in order, and the scenario with each.

    Parameters
    ----------
    value
        The value of a choice by its number.
    change
        What the value makes of the scenario.
    count
        How many choices there are; None is no bound.
    start
        The scenario's own choice, or one near it.
    falling
        Whether memory falls with the value, so that the smallest that fits is wanted.
    """

    value: Callable[[int], int]
    change: Callable[[int], Scenario]
    count: int | None = None
    start: int = 1
    falling: bool = False


def choices_of(s: Scenario, vary: str) -> Choices:
    """Choices of a field of a training scenario.

    Raises
    ------
    ValueError
        If the scenario fixes what is to be varied.
    """
    return {"sequence": sequences, "micro_batch": micro_batches, "layers": layer_counts, "gpus": worlds}[
        vary
    ](s)


def sequences(s: Scenario) -> Choices:
    """Lengths that ranks can cut equally; learned positions end them."""
    layout, step = s.layout, 1
    if layout.cp > 1:
        step = 2 * layout.cp if layout.cp_split == "zigzag" else layout.cp
    if layout.sequence_parallel:
        step = math.lcm(step, layout.tp * layout.cp)
    return Choices(
        value=lambda index: step * (index + 1),
        change=lambda value: replace(s, workload=replace(s.workload, sequence=value)),
        count=s.model.positions // step if s.model.positions else None,
        start=s.workload.sequence // step - 1,
    )


def micro_batches(s: Scenario) -> Choices:
    """Micro-batches that divide a global batch, or any where it follows them."""
    work = s.workload

    def change(value: int) -> Scenario:
        return replace(s, workload=replace(work, micro_batch=value))

    if work.global_batch is None:
        return Choices(value=lambda index: index + 1, change=change)
    sizes = divisors(work.global_batch // s.layout.dp)
    return Choices(value=lambda index: sizes[index], change=change, count=len(sizes))


def layer_counts(s: Scenario) -> Choices:
    """Depths that the stages divide; windows and dense layers repeat as in the whole model."""
    if s.layout.stage_layers is not None:
        raise ValueError(
            f"vary='layers' but stage_layers={s.layout.stage_layers} fixes them; leave stage_layers out"
        )
    stages = s.layout.stages
    return Choices(
        value=lambda index: stages * (index + 1),
        change=lambda value: replace(s, model=with_layers(s.model, value)),
        start=s.model.layers // stages - 1,
    )


def with_layers(model: Model, layers: int) -> Model:
    """The model with another depth, its pattern of full layers repeated."""
    full = tuple(n for n in range(layers) if n % model.layers in set(model.full_layers))
    if model.window is not None and len(full) == layers:
        return replace(model, layers=layers, full_layers=(), window=None, chunked=False)
    return replace(model, layers=layers, full_layers=full)


def worlds(s: Scenario) -> Choices:
    """Numbers of GPUs by data-parallel degree: those that a global batch and the other degrees allow."""
    layout, rest = s.layout, s.world // s.layout.dp
    batch = s.workload.global_batch
    unit = math.lcm(layout.dp_replicate, expert_unit(s))
    if batch is None:
        degrees = range(unit, max(unit, MOST_GPUS // rest) + 1, unit)
    else:
        degrees = [d for d in divisors(batch // s.workload.micro_batch) if d % unit == 0]

    def change(value: int) -> Scenario:
        machines = enough(s.cluster, value)
        return replace(s, layout=replace(layout, dp=value // rest), cluster=machines)

    return Choices(value=lambda index: rest * degrees[index], change=change, count=len(degrees), falling=True)


def expert_unit(s: Scenario) -> int:
    """What dp must be a multiple of so that experts can be dealt out over ranks that exist."""
    return 1 if s.layout.ep_rule == "independent" else ranks_for_experts(s.layout)


def enough(machines: Cluster, gpus: int) -> Cluster:
    """As many nodes of a cluster as hold some GPUs."""
    nodes = math.ceil(gpus / machines.gpus_per_node)
    name = f"{nodes}x{machines.gpus_per_node}-{machines.gpu.name}"
    return replace(machines, nodes=nodes, name=machines.name if nodes == machines.nodes else name)


def tried(s: Scenario, value: int) -> Tried:
    """Memory of a scenario's worst rank, without the formulas of its terms."""
    if s.layout.pp > 1:
        peak = max(memory.peak_bytes for memory in rank_memories(s))
    else:
        peak = program_of(s).memory().peak_bytes
    device = peak + sum(row["bytes"] for row in driver_terms(s, unused_of(s, peak)))
    fits = device <= s.cluster.gpu.memory_bytes
    return Tried(value=value, peak_bytes=peak, device_bytes=device, fits=fits)


def ways(s: Scenario) -> Iterator[tuple[str, Callable[[], Scenario]]]:
    """Changes that make room, the cheapest first: a name, and the scenario, which may be refused."""
    work, layout = s.workload, s.layout
    if work.recompute != "full":
        yield "recompute=full", lambda: replace(s, workload=replace(work, recompute="full"))
    for zero in range(max(1, layout.zero + 1), 4):
        if layout.dp > 1:
            yield f"zero={zero}", lambda zero=zero: replace(s, layout=replace(layout, zero=zero))
    both = replace(work, recompute="full")
    if layout.dp > 1 and layout.zero < 3:
        yield (
            "zero=3 with recompute=full",
            lambda: replace(s, workload=both, layout=replace(layout, zero=3)),
        )
    for name in ("h200", "b200"):
        yield f"gpu={name}", lambda name=name: replace(s, cluster=bigger(s.cluster, name))
    for tp in (2 * layout.tp, 4 * layout.tp, 8 * layout.tp):
        wider = replace(layout, tp=tp)
        yield (
            f"tp={tp} with recompute=full",
            lambda wider=wider: replace(
                s, workload=both, layout=wider, cluster=enough(s.cluster, wider.world)
            ),
        )


def bigger(machines: Cluster, gpu: str) -> Cluster:
    """As many nodes with another GPU, refused if it has no more memory."""
    found = cluster(f"{machines.nodes}x{machines.gpus_per_node}-{gpu}")
    if found.gpu.memory_bytes <= machines.gpu.memory_bytes:
        raise ValueError(f"gpu={gpu} has no more memory than {machines.gpu.name}; use a larger one")
    return found

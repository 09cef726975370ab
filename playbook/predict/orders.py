"""A scenario's schedule: what each pipeline rank runs in which order, and which stages lie on one rank."""

from functools import lru_cache

import numpy as np

from playbook.frameworks import policy
from playbook.program.order import RUNS, Columns, Run, accumulate
from playbook.program.schedule import Schedule, schedule
from playbook.schedules.packed import unpack
from playbook.schedules.registry import find_plan
from playbook.spec import Scenario
from playbook.strategies.pp.plan import runs

SHARED_PARAMETERS = 3


def pipeline(s: Scenario) -> Schedule:
    """The layout's schedule at its size.

    Raises
    ------
    ValueError
        If the framework has no such schedule, or a file's stages are not the layout's.
    """
    layout = s.layout
    made = schedule(layout.schedule, layout.pp, s.microbatches, layout.chunks, framework=s.framework)
    if made.depth != layout.stages:
        raise ValueError(
            f"schedule={layout.schedule} passes {made.depth} stages but pp={layout.pp} x chunks="
            f"{layout.chunks} = {layout.stages}; give every rank {layout.chunks} of them"
        )
    return made


def order_of(s: Scenario, pp_rank: int) -> tuple[Run, ...]:
    """A pipeline rank's order list."""
    if s.layout.stages == 1:
        return accumulate(s.microbatches)
    made = pipeline(s)
    copies = (Run("G", slot, -1) for slot in copied(made, pp_rank))
    order = [*runs(made.order(pp_rank)), *copies]
    for place, slot in reductions(s, Columns.of(order)):
        order.insert(place, Run("G", slot, order[place - 1].microbatch))
    return tuple(order)


def columns_of(s: Scenario, pp_rank: int, made: Schedule) -> Columns:
    """A pipeline rank's order list as arrays, without making its runs."""
    if s.layout.stages == 1:
        return Columns.of(accumulate(s.microbatches))
    stage, kind, microbatch = unpack(made.packed[pp_rank])
    copies = np.array(copied(made, pp_rank), dtype=np.int64)
    found = Columns(
        segment=np.append(kind, np.full(len(copies), RUNS.index("G"))),
        stage=np.append(stage, copies),
        microbatch=np.append(microbatch, np.full(len(copies), -1)),
    )
    for place, slot in reductions(s, found):
        found = Columns(
            segment=np.insert(found.segment, place, RUNS.index("G")),
            stage=np.insert(found.stage, place, slot),
            microbatch=np.insert(found.microbatch, place, found.microbatch[place - 1]),
        )
    return found


def reduces_after(s: Scenario) -> bool:
    """Whether every stage reduces its gradients behind its last backward, in a segment of its own.

    So does torch.distributed.pipelining with FSDP2, whatever the last micro-batch is (`stage.py` of torch
    2.13, `backward_maybe_with_nosync` and `perform_reduce_grad`).
    """
    layout, once = s.layout, s.workload.gradient_sync == "last" or s.microbatches == 1
    waits = layout.zero == SHARED_PARAMETERS and layout.pp > 1 and once
    return waits and policy(s.framework).reduces_after and routes(s)[1] == 1


def reductions(s: Scenario, columns: Columns) -> list[tuple[int, int]]:
    """Places of an order list, from its end to its start, before which a stage reduces its gradients."""
    if not reduces_after(s):
        return []
    last = {slot: place for place, slot in enumerate(columns.stage.tolist())}
    return sorted(((place + 1, slot) for slot, place in last.items()), reverse=True)


def copied(made: Schedule, rank: int) -> list[int]:
    """Stages of a rank that another rank holds a copy of."""
    owners, depth = made.placement, made.depth
    mine = [slot for slot, owner in enumerate(owners) if owner == rank]
    return [slot for slot in mine if any(owner != rank for owner in owners[slot % depth :: depth])]


def routes(s: Scenario) -> tuple[tuple[int, ...], int]:
    """Rank of each stage of the schedule, and the directions in which micro-batches pass."""
    layout = s.layout
    if layout.schedule.endswith(".csv"):
        made = schedule(layout.schedule)
        return made.placement, made.chains
    plan = find_plan(layout.schedule)
    return plan.placement(layout.pp, layout.chunks or plan.default_chunks), plan.chains


def near(s: Scenario, slot: int) -> tuple[bool, bool]:
    """Whether the stages before and after a stage are on its own rank."""
    owners, depth = routes(s)[0], s.layout.stages
    stage = slot % depth
    before = stage > 0 and owners[slot - 1] == owners[slot]
    return before, stage < depth - 1 and owners[slot + 1] == owners[slot]


def splits_backward(name: str) -> bool:
    """Whether a schedule runs backwards in two parts."""
    return schedule(name).splits_backward if name.lower().endswith(".csv") else named_splits(name)


@lru_cache(maxsize=64)
def named_splits(name: str) -> bool:
    """Whether one of the folder does, which its smallest sizes tell."""
    return schedule(name, 2, 4).splits_backward

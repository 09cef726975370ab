"""A scenario's schedule: what each pipeline rank runs in which order, and which stages lie on one rank."""

import numpy as np

from playbook.program.order import RUNS, Columns, Run, accumulate
from playbook.program.schedule import Schedule, schedule
from playbook.schedules.packed import unpack
from playbook.schedules.registry import find_plan
from playbook.spec import Scenario
from playbook.strategies.pp.plan import runs


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
    return (*runs(made.order(pp_rank)), *copies)


def columns_of(s: Scenario, pp_rank: int, made: Schedule) -> Columns:
    """A pipeline rank's order list as arrays, without making its runs."""
    if s.layout.stages == 1:
        return Columns.of(accumulate(s.microbatches))
    stage, kind, microbatch = unpack(made.packed[pp_rank])
    copies = np.array(copied(made, pp_rank), dtype=np.int64)
    return Columns(
        segment=np.append(kind, np.full(len(copies), RUNS.index("G"))),
        stage=np.append(stage, copies),
        microbatch=np.append(microbatch, np.full(len(copies), -1)),
    )


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

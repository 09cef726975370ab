"""Time of one rank's step: rows on their streams, through the event engine.

A model, not a measurement: products run at a rate, other rows move their results at a bandwidth, collectives
take ring time. A gather may run as soon as the gather before it has been copied out; a reduction waits for
the compute that makes its input; the optimizer waits for everything. Keys passed around a ring travel
while the attention core computes, and what follows the core waits for the last of them. What other ranks do
is left out: a receive is there when it is asked for.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from playbook.program.engine import run_streams
from playbook.program.ids import PHASES
from playbook.program.order import Ints
from playbook.program.rates import Rates
from playbook.program.step import Program
from playbook.program.traffic import WIRE, group_size
from playbook.spec import Link
from playbook.tables import table
from playbook.units import seconds

if TYPE_CHECKING:
    from pandas import DataFrame

TRAFFIC_PER_RESULT = 3
"""Bytes moved for each byte of result in a row that is no product: two operands read, one result written."""

HOPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "broadcast": 1}
"""Times that a ring of n passes n − 1 messages."""

COPY_OUT = "split_with_sizes_copy"
CORE, RING = "sdpa", "ring"
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Timeline:
    """When each row of a step starts and how long it takes, in seconds.

    Parameters
    ----------
    program
        What was timed.
    start_s, duration_s
        One value a row.
    """

    program: Program
    start_s: Floats
    duration_s: Floats

    def __repr__(self) -> str:
        return f"Timeline(rank {self.program.rank}: {seconds(self.seconds)}, simulated)"

    @property
    def seconds(self) -> float:
        """End of the last row."""
        return float((self.start_s + self.duration_s).max(initial=0.0))

    @property
    def communicates(self) -> NDArray[np.bool_]:
        """Which rows communicate."""
        return self.program.rows.axis >= 0

    @property
    def exposed_s(self) -> float:
        """Time in which no compute row runs: what communication does not hide, and what follows it."""
        return self.seconds - float(self.duration_s[~self.communicates].sum())

    @property
    def table(self) -> "DataFrame":
        """The timeline table, one row an operation that takes time."""
        program, rows = self.program, self.program.rows
        index = np.flatnonzero(self.duration_s > 0)
        kinds = [kind_of(program, int(row)) for row in index]
        ids = program.ids()
        return table(
            "timeline",
            {
                "scenario": [program.scenario] * len(index),
                "rank": [program.rank] * len(index),
                "op": [ids[row] for row in index],
                "lane": [program.streams[code] for code in rows.stream[index]],
                "kind": kinds,
                "label": [ids[row].rpartition("/")[2] for row in index],
                "microbatch": program.microbatch[index],
                "start_s": self.start_s[index],
                "duration_s": self.duration_s[index],
                "bytes": rows.payload[index],
                "source": ["simulated"] * len(index),
            },
        )


def kind_of(program: Program, row: int) -> str:
    """One of the tables' kinds."""
    op, _, axis = program.ops[program.rows.op[row]].partition("@")
    if op in ("send", "receive"):
        return op
    return "collective" if axis else KIND_OF[program.phase(row)]


KIND_OF = {
    "F": "forward",
    "R": "recompute",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
    "O": "optimizer",
}
"""Kind of a phase's computing rows."""


def time_program(program: Program, rates: Rates) -> Timeline:
    """Run a program's rows on their streams."""
    duration = durations(program, rates)
    separate = (program.rows.axis >= 0) & (program.rows.stream != program.streams.index("compute"))
    chunk, starts = chunks(program, separate)
    lengths = np.bincount(chunk, weights=duration, minlength=len(starts))
    begin = run_streams(lengths, program.rows.stream[starts], waits(program, separate, chunk, starts))
    before = np.concatenate(([0.0], np.cumsum(duration)[:-1]))
    within = before - before[starts][chunk]
    return Timeline(program=program, start_s=begin[chunk] + within, duration_s=duration)


def durations(program: Program, rates: Rates) -> Floats:
    """Seconds of each row."""
    rows, held = program.rows, program.held
    again = rows.phase[np.minimum(held.birth, len(program) - 1)] == PHASES.index("R")
    # A split leaves what is moved as it is, beside what is computed again.
    made = np.where(program.split_only & ~again, 0, program.sizes)
    results = np.bincount(held.birth, weights=made, minlength=len(program))[: len(program)]
    results[0] = 0  # state is there already
    moved = TRAFFIC_PER_RESULT * results / rates.memory_bytes_per_s
    moved[optimizer_row(program)] = optimizer_bytes(program) / rates.memory_bytes_per_s
    seconds = np.maximum(rows.flops / rates.flops_per_s, moved)
    for row in np.flatnonzero(rows.axis >= 0):
        op, _, axis = program.ops[rows.op[row]].partition("@")
        ranks = group_size(op, axis, program.axes, int(rows.ranks[row]))
        seconds[row] = ring_seconds(op, int(rows.payload[row]), ranks, rates.links.get(axis))
    return seconds


def optimizer_row(program: Program) -> int:
    """Row of the optimizer."""
    return int(np.flatnonzero(program.rows.op == program.ops.index("optimizer"))[0])


def optimizer_bytes(program: Program) -> float:
    """Bytes that the optimizer moves: it reads and writes parameters and states, and reads gradients."""
    level = program.memory().terms_at(optimizer_row(program))
    written = sum(level.get(term, 0) for term in ("parameters", "optimizer", "master_weights"))
    return 2 * written + level.get("gradients", 0)


def ring_seconds(op: str, payload: int, ranks: int, link: Link | None) -> float:
    """Seconds of a collective in a ring, or of a message; a receive is its sender's time."""
    if link is None or ranks == 1 or op == "receive":
        return 0.0
    messages = HOPS.get(op, 0) * (ranks - 1) or 1
    return messages * link.latency_s + WIRE[op](ranks) * payload / link.bandwidth_bytes_per_s


def chunks(program: Program, separate: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Merge compute rows between those that communicate elsewhere or wait: chunk of each row, first row of
    each."""
    core = CORE if RING in program.streams else COPY_OUT
    names = np.array([label.startswith((COPY_OUT, core)) for label in program.ops])
    breaks = separate | names[program.rows.op] | (program.microbatch < 0)
    opens = breaks.copy()
    opens[1:] |= breaks[:-1]
    opens[:1] = True
    return np.cumsum(opens) - 1, np.flatnonzero(opens)


def waits(program: Program, separate: NDArray[np.bool_], chunk: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Which chunk waits for which: see the module's text."""
    rows, pairs = program.rows, []
    copy_out, core = (
        np.array([label.startswith(name) for label in program.ops])[rows.op] for name in (COPY_OUT, CORE)
    )
    passed = rows.stream == (program.streams.index(RING) if RING in program.streams else -1)
    last_compute = last_copy = last_hop = -1
    pending: dict[int, int] = {}
    for row, each in zip(starts.tolist(), chunk[starts].tolist(), strict=True):
        key = int(rows.layer[row])
        last_hop = each if passed[row] else last_hop
        if separate[row]:
            gathers = program.ops[rows.op[row]].startswith("all_gather") and PHASES[rows.phase[row]] != "O"
            source = last_copy if gathers else last_compute
            if source >= 0:
                pairs.append((each, source))
            if gathers:
                pending[key] = each
            continue
        if last_hop >= 0 and not core[row]:
            pairs.append((each, last_hop))
            last_hop = -1
        if copy_out[row]:
            last_copy = each
            if key in pending:
                pairs.append((each, pending.pop(key)))
        if program.microbatch[row] < 0:
            pairs += [(each, other) for other in range(each) if separate[starts[other]]]
        last_compute = each
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]

"""One segment of a stage: which rows stand where for one micro-batch, those that neighbours issue
included."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from playbook.program.block import Block
from playbook.program.ids import PHASES
from playbook.program.names import Names, code
from playbook.program.op import END, FIRST, OPTIMIZER, START, At, Op
from playbook.program.order import WHEN, Ints
from playbook.tables import AXES

MISSING = -(2**40)
STEP = Op(owner="", op="optimizer", phase="O", name=OPTIMIZER.row, absolute=True)
"""The optimizer: the first row of the step's last segment."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Operations, one array a column; names are indices into lists kept beside them."""

    owner: Ints
    op: Ints
    layer: Ints
    phase: Ints
    axis: Ints
    stream: Ints
    when: Ints
    flops: Ints
    payload: Ints
    ranks: Ints
    for_weights: Ints

    def __len__(self) -> int:
        return len(self.owner)


@dataclass(frozen=True, slots=True)
class Host:
    """A distinct list of rows of a block: indices of its operations, and how much deeper each one's owner
    lies."""

    ops: tuple[int, ...]
    steps: tuple[int, ...]
    places: dict[tuple[int, str], int]


class SegmentRows:
    """Rows of one segment.

    Parameters
    ----------
    letter
        F, B, O or G.
    kinds, unique
        Kind of each block of the stage in depth order, and the block of each kind.
    """

    def __init__(self, letter: str, kinds: Ints, unique: Sequence[Block]) -> None:
        self.letter, self.kinds, self.unique = letter, kinds, tuple(unique)
        self.ops = [op for block in unique for op in block.segment(letter)]
        self.moved = {op.name: op.issue for op in self.ops if op.issue}
        self.hosts: list[Host] = []
        self.host_of = self._find_hosts()
        self.lengths = np.array([len(host.ops) for host in self.hosts], dtype=np.int64)
        count = len(kinds)
        self.order = np.arange(count)[::-1] if letter == "B" else np.arange(count)
        self.lead = 1 if letter == "O" else 0
        ends = np.cumsum(self.lengths[self.host_of[self.order]]) + self.lead
        self.start = np.empty(count, dtype=np.int64)
        self.start[self.order] = ends - self.lengths[self.host_of[self.order]]
        self.total = int(ends[-1])
        self._tables: dict[tuple[int, str, str], Ints] = {}

    def _find_hosts(self) -> Ints:
        offsets, at = [], 0
        for block in self.unique:
            offsets.append(at)
            at += len(block.segment(self.letter))
        found: dict[tuple[int, int, int], int] = {}
        kinds = [-1, *self.kinds.tolist(), -1]
        host_of = []
        for shallower, kind, deeper in zip(kinds, kinds[1:], kinds[2:], strict=False):
            key = (kind, shallower, deeper) if self.moved else (kind, -1, -1)
            if key not in found:
                found[key] = len(self.hosts)
                self.hosts.append(self._host(*key, offsets))
            host_of.append(found[key])
        return np.array(host_of, dtype=np.int64)

    def _host(self, kind: int, shallower: int, deeper: int, offsets: list[int]) -> Host:
        """A block's own rows, and those that the block before and behind it in depth issue in it."""
        ops = self.unique[kind].segment(self.letter)
        own = [(offsets[kind] + index, 0) for index, op in enumerate(ops) if not op.issue]
        for step, neighbour in ((1, shallower), (-1, deeper)):
            for index, op in enumerate(self.unique[neighbour].segment(self.letter) if neighbour >= 0 else ()):
                if op.issue and op.issue.block == step:
                    own.insert(self._behind(own, op.issue), (offsets[neighbour] + index, -step))
        places = {(step, self.ops[index].name): place for place, (index, step) in enumerate(own)}
        return Host(tuple(index for index, _ in own), tuple(step for _, step in own), places)

    def _behind(self, own: list[tuple[int, int]], issue: At) -> int:
        names = [self.ops[index].name if step == 0 else "" for index, step in own]
        for name in (issue.row, issue.otherwise):
            if name in names:
                return names.index(name) + 1
            if name == END:
                return len(own)
        return 0

    def rows(self, names: Names, layers: Ints) -> Rows:
        """Columns of the rows in order of issue; `layers` is each block's layer, −1 for none."""
        columns, absolute = self._columns(names)
        take, steps = self._laid()
        layer = np.where(absolute[take], -1, layers[self.block_of_row + steps])
        if self.lead:
            take, layer = np.concatenate(([len(self.ops)], take)), np.concatenate(([-1], layer))
        return Rows(layer=layer, **{name: column[take] for name, column in columns.items()})

    def _laid(self) -> tuple[Ints, Ints]:
        """Of each row in order of issue, the optimizer aside: its operation, and how much deeper its owner
        lies."""
        hosts = self.host_of[self.order]
        flat = np.array([index for host in self.hosts for index in host.ops], dtype=np.int64)
        steps = np.array([step for host in self.hosts for step in host.steps], dtype=np.int64)
        begin = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[hosts]
        within = np.arange(self.total - self.lead) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        place = np.repeat(begin[hosts], lengths) + within
        return flat[place], steps[place]

    def column(self, read: Callable[[Op], int]) -> Ints:
        """What a function reads of each row, in order of issue, the optimizer aside."""
        return np.array([read(op) for op in self.ops], dtype=np.int64)[self._laid()[0]]

    def _columns(self, names: Names) -> tuple[dict[str, Ints], np.ndarray]:
        """Columns of the distinct operations, the optimizer last."""
        records = [
            (
                code(names.owners, op.owner),
                code(names.ops, op.label),
                PHASES.index(op.phase),
                AXES.index(op.axis) if op.axis else -1,
                code(names.streams, op.stream),
                WHEN.index(op.when),
                op.flops if isinstance(op.flops, int) else 0,
                op.payload if isinstance(op.payload, int) else 0,
                op.ranks,
                op.for_weights,
                op.absolute,
            )
            for op in (*self.ops, STEP)
        ]
        table = np.array(records, dtype=np.int64).T
        fields = (
            "owner",
            "op",
            "phase",
            "axis",
            "stream",
            "when",
            "flops",
            "payload",
            "ranks",
            "for_weights",
        )
        return dict(zip(fields, table, strict=False)), table[-1].astype(bool)

    @property
    def block_of_row(self) -> Ints:
        """Place in depth of the block in whose turn each row runs."""
        return np.repeat(self.order, self.lengths[self.host_of[self.order]])

    def place(self, at: At, instances: Ints) -> Ints:
        """Row of a place as seen from each of several blocks; a block that is not there is the stage's end.

        Raises
        ------
        ValueError
            If a block has no such row.
        """
        if self.lead and at.row == OPTIMIZER.row:
            return np.zeros(len(instances), dtype=np.int64)
        if not at.block and at.row not in self.moved:
            row = self._table(0, at.row, at.otherwise)[self.host_of[instances]]
            if row.min(initial=0) > MISSING:
                return np.minimum(self.start[instances] + row, max(self.total - 1, 0))
        last = len(self.kinds) - 1
        asked = asked_blocks(at, instances, last)
        inside = (asked >= 0) & (asked <= last)
        if not inside.all():
            early = (asked < 0) == (self.letter != "B")
            result = np.where(early, 0, max(self.total - 1, 0))
            result[inside] = self.place(at._replace(block=0), asked[inside])
            return result
        row = self._table(0, at.row, at.otherwise)[self.host_of[asked]]
        result = self.start[asked] + row
        if at.row in self.moved:
            self._follow_moved(at, asked, row, result)
        if (row == MISSING).any():
            name = self.unique[int(self.kinds[asked[row == MISSING][0]])].name
            raise ValueError(f"block {name!r} has no row {at.row!r} in segment {self.letter}")
        return np.clip(result, 0, max(self.total - 1, 0))

    def _follow_moved(self, at: At, asked: Ints, row: Ints, result: Ints) -> None:
        """Correct the places of rows that run in a neighbour."""
        for kind, block in enumerate(self.unique):
            issue = next(
                (op.issue for op in block.segment(self.letter) if op.name == at.row and op.issue), None
            )
            if issue is None:
                continue
            mine = np.flatnonzero(self.kinds[asked] == kind)
            hosts = asked[mine] + int(issue.block)
            row[mine] = self._table(-int(issue.block), at.row, at.otherwise)[self.host_of[hosts]]
            result[mine] = self.start[hosts] + row[mine]

    def _table(self, step: int, row: str, otherwise: str) -> Ints:
        """Index of a row in each distinct row list, as owned by the block that lies `step` deeper."""
        key = (step, row, otherwise)
        if key not in self._tables:
            self._tables[key] = np.array([find(host, *key) for host in self.hosts], dtype=np.int64)
        return self._tables[key]


def asked_blocks(at: At, instances: Ints, last: int) -> Ints:
    """Blocks that a place names, as seen from several; `last` is the deepest of the stage."""
    if isinstance(at.block, str):
        return np.full(len(instances), 0 if at.block == FIRST else last)
    return instances + at.block if at.block else instances


def find(host: Host, step: int, row: str, otherwise: str) -> int:
    """Index of a named row in a row list, or of where it is otherwise."""
    for name in (row, otherwise):
        if name == START:
            return 0
        if name == END:
            return len(host.ops) - 1
        if (step, name) in host.places:
            return host.places[step, name]
    return MISSING

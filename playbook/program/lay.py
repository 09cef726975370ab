"""Lay the templates of one pipeline stage side by side: rows and tensors of one micro-batch as arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from playbook.program.block import END, FIRST, OPTIMIZER, START, At, Block, Op, Tensor
from playbook.program.ids import PHASES
from playbook.tables import AXES, TERMS

SEGMENTS = ("S", "F", "B", "O")
WHEN = ("every", "first", "last", "later", "step")
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Operations of a segment, one array a column; names are indices into the stage's lists."""

    owner: Ints
    op: Ints
    layer: Ints
    phase: Ints
    axis: Ints
    stream: Ints
    when: Ints
    flops: NDArray[np.float64]
    payload: Ints

    def __len__(self) -> int:
        return len(self.owner)

    @classmethod
    def of(cls, columns: dict[str, Any]) -> "Rows":
        """Make rows from columns of numbers."""
        return cls(**columns)


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """Tensors of a stage: where each is born and dies, as segment and row of one micro-batch."""

    birth_segment: Ints
    birth_row: Ints
    death_segment: Ints
    death_row: Ints
    size: Ints
    term: Ints
    when: Ints
    template: Ints
    """Index into `Stage.templates`."""
    layer: Ints

    def __len__(self) -> int:
        return len(self.size)


class Stage:
    """One stage's blocks, laid out for one micro-batch.

    Parameters
    ----------
    blocks
        From the first to the last in depth; equal layers are one object, which makes laying fast.
    layers
        Global number of each block's layer, −1 for a block that is none.
    """

    def __init__(self, blocks: Sequence[Block], layers: Sequence[int]) -> None:
        self.blocks = tuple(blocks)
        self.layers = np.asarray(layers, dtype=np.int64)
        self.owners: dict[str, int] = {}
        self.ops: dict[str, int] = {}
        self.streams: dict[str, int] = {"compute": 0}
        unique: dict[int, int] = {}
        self.kinds = np.array([unique.setdefault(id(block), len(unique)) for block in self.blocks])
        self.unique = [self.blocks[int(np.flatnonzero(self.kinds == kind)[0])] for kind in range(len(unique))]
        self._segments = {letter: _Segment(self, letter) for letter in "FBO"}
        self.templates: list[Tensor] = []

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """Rows of F, B and O."""
        return {letter: segment.rows() for letter, segment in self._segments.items()}

    def place(self, at: At, instances: Ints) -> Ints:
        """Row of a place as seen from each of several blocks."""
        return self._segments[at.segment].place(at, instances)

    @cached_property
    def tensors(self) -> Tensors:
        """Tensors of every block."""
        parts: list[tuple[Any, ...]] = []
        self.templates.clear()
        for kind, block in enumerate(self.unique):
            instances = np.flatnonzero(self.kinds == kind)
            for tensor in block.tensors:
                parts.append(self._spread(tensor, len(self.templates), instances))
                self.templates.append(tensor)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [_NONE] * 9
        return Tensors(**dict(zip(Tensors.__dataclass_fields__, columns, strict=True)))

    def _spread(self, tensor: Tensor, index: int, instances: Ints) -> tuple[Any, ...]:
        birth_segment, birth_row = self._end(tensor.birth, instances)
        death_segment, death_row = self._end(tensor.death, instances)
        size = tensor.bytes if isinstance(tensor.bytes, int) else 0
        constants = (size, TERMS.index(tensor.term), WHEN.index(tensor.when), index)
        spread = (np.full(len(instances), value, dtype=np.int64) for value in constants)
        return birth_segment, birth_row, death_segment, death_row, *spread, self.layers[instances]

    def _end(self, at: At | None, instances: Ints) -> tuple[Ints, Ints]:
        if at is None or at.segment == "S":
            zeros = np.zeros(len(instances), dtype=np.int64)
            return zeros, zeros
        code = np.full(len(instances), SEGMENTS.index(at.segment), dtype=np.int64)
        return code, self.place(at, instances)


_NONE = np.zeros(0, dtype=np.int64)


class _Segment:
    """One segment of a stage: which rows stand where, moved ones included."""

    def __init__(self, stage: Stage, letter: str) -> None:
        self.stage, self.letter = stage, letter
        count = len(stage.blocks)
        self.hosts, host_of = self._find_hosts()
        self.host_of = np.array(host_of)
        self.lengths = np.array([len(host) for host in self.hosts], dtype=np.int64)
        order = np.arange(count)[::-1] if letter == "B" else np.arange(count)
        self.order = order
        lead = 1 if letter == "O" else 0
        ends = np.cumsum(self.lengths[self.host_of[order]]) + lead
        self.start = np.zeros(count, dtype=np.int64)
        self.start[order] = np.concatenate(([lead], ends[:-1])) if count else ends
        self.total = int(ends[-1]) if count else lead
        self._index = [{(step, op.name): n for n, (op, step) in enumerate(host)} for host in self.hosts]
        self._issues = [
            {op.name: op.issue for op in block.segment(letter) if op.issue} for block in stage.unique
        ]
        self._tables: dict[tuple[int, str, str], Ints] = {}

    def _find_hosts(self) -> tuple[list[list[tuple[Op, int]]], list[int]]:
        """Distinct row lists: a block's own rows, and those that neighbours issue in it, with their layer's
        offset."""
        kinds, hosts, found = self.stage.kinds, [], {}
        host_of = []
        for place in range(len(kinds)):
            around = tuple(
                int(kinds[place - step]) if 0 <= place - step < len(kinds) else -1 for step in (-1, 1)
            )
            key = (int(kinds[place]), *around)
            if key not in found:
                found[key] = len(hosts)
                hosts.append(self._host(*key))
            host_of.append(found[key])
        return hosts, host_of

    def _host(self, kind: int, deeper: int, shallower: int) -> list[tuple[Op, int]]:
        own = [(op, 0) for op in self.stage.unique[kind].segment(self.letter) if not op.issue]
        for step, neighbour in ((-1, deeper), (1, shallower)):
            if neighbour < 0:
                continue
            for op in self.stage.unique[neighbour].segment(self.letter):
                if op.issue and op.issue.block == step:
                    own.insert(self._behind(own, op.issue), (op, -step))
        return own

    @staticmethod
    def _behind(own: list[tuple[Op, int]], issue: At) -> int:
        names = [op.name if step == 0 else "" for op, step in own]
        for name in (issue.row, issue.otherwise):
            if name in names:
                return names.index(name) + 1
            if name == END:
                return len(own)
        return 0

    def rows(self) -> Rows:
        """Columns of the segment's rows, in order."""
        flat = [(op, step) for host in self.hosts for op, step in host]
        columns = self._columns(flat)
        offsets = np.concatenate(([0], np.cumsum(self.lengths)))[:-1]
        hosts = self.host_of[self.order]
        lengths = self.lengths[hosts]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        take = np.repeat(offsets[hosts], lengths) + within
        block = np.repeat(self.order, lengths) + columns.pop("step")[take]
        laid = {name: column[take] for name, column in columns.items()}
        absolute = laid.pop("absolute").astype(bool)
        laid["layer"] = np.where(absolute, -1, self.stage.layers[block]) if len(block) else _NONE
        if self.letter == "O":
            lead = self._columns([(STEP, 0)])
            del lead["step"], lead["absolute"]
            lead["layer"] = np.array([-1])
            laid = {name: np.concatenate((lead[name], column)) for name, column in laid.items()}
        return Rows.of(laid)

    def _columns(self, flat: list[tuple[Op, int]]) -> dict[str, Any]:
        stage = self.stage

        def code(table: dict[str, int], text: str) -> int:
            return table.setdefault(text, len(table))

        def ints(read: Callable[[Op], int]) -> Ints:
            return np.fromiter((read(op) for op, _ in flat), dtype=np.int64, count=len(flat))

        return {
            "owner": ints(lambda op: code(stage.owners, op.owner)),
            "op": ints(lambda op: code(stage.ops, op.label)),
            "phase": ints(lambda op: PHASES.index(op.phase)),
            "axis": ints(lambda op: AXES.index(op.axis) if op.axis else -1),
            "stream": ints(lambda op: code(stage.streams, op.stream)),
            "when": ints(lambda op: WHEN.index(op.when)),
            "flops": ints(lambda op: number(op.flops)).astype(np.float64),
            "payload": ints(lambda op: number(op.payload)),
            "absolute": ints(lambda op: op.absolute),
            "step": np.array([step for _, step in flat], dtype=np.int64),
        }

    def place(self, at: At, instances: Ints) -> Ints:
        """Row of a place as seen from each of several blocks; a block that is not there is the stage's
        end."""
        if self.letter == "O" and at.row == OPTIMIZER.row:
            return np.zeros(len(instances), dtype=np.int64)
        last = len(self.stage.blocks) - 1
        if isinstance(at.block, str):
            asked = np.full(len(instances), 0 if at.block == FIRST else last)
        else:
            asked = instances + at.block
        block = np.clip(asked, 0, last)
        row = self._row(0, at.row, at.otherwise)[block]
        result = self.start[block] + row
        for step, moved in self._moves(at.row):
            hosts = np.clip(block + step, 0, last)
            there = self._row(-step, at.row, at.otherwise)[hosts]
            row = np.where(moved[block], there, row)
            result = np.where(moved[block], self.start[hosts] + there, result)
        outside = asked != block
        self._check(at, block[~outside], row[~outside])
        if outside.any():
            early = (asked < 0) == (self.letter != "B")
            result = np.where(outside, np.where(early, 0, self.total - 1), result)
        return np.clip(result, 0, max(self.total - 1, 0))

    def _moves(self, row: str) -> list[tuple[int, NDArray[np.bool_]]]:
        steps = {int(issues[row].block) for issues in self._issues if row in issues}
        return [
            (step, np.array([row in self._issues[kind] for kind in self.stage.kinds]))
            for step in sorted(steps)
        ]

    def _row(self, step: int, row: str, otherwise: str) -> Ints:
        """Index of a row in each block, by way of the block's distinct row list."""
        key = (step, row, otherwise)
        if key not in self._tables:
            self._tables[key] = np.array([self._find(host, *key) for host in range(len(self.hosts))])[
                self.host_of
            ]
        return self._tables[key]

    def _find(self, host: int, step: int, row: str, otherwise: str) -> int:
        for name in (row, otherwise):
            if name == START:
                return 0
            if name == END:
                return int(self.lengths[host]) - 1
            if (step, name) in self._index[host]:
                return self._index[host][step, name]
        return MISSING

    def _check(self, at: At, block: Ints, row: Ints) -> None:
        wrong = block[row == MISSING]
        if len(wrong):
            name = self.stage.blocks[int(wrong[0])].name
            raise ValueError(f"block {name!r} has no row {at.row!r} in segment {self.letter}")


MISSING = -(2**40)
STEP = Op(owner="", op="optimizer", phase="O", name=OPTIMIZER.row)


def number(size: Any) -> int:
    """A size as a number; a polynomial, which only formulas read, as 0."""
    return size if isinstance(size, int) else 0

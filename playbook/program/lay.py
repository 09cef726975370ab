"""Lay the templates of one pipeline stage side by side: rows and tensors of one micro-batch as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from playbook.program.block import Block, Tensor
from playbook.program.names import Names
from playbook.program.op import BEFORE_STEP, At
from playbook.program.order import EVERY, ONLY, SEGMENTS, STATE, STEP, WHEN, Flags, Ints, Turn, runs_in_turn
from playbook.program.segment import Rows, SegmentRows
from playbook.program.split import Split, split_ends
from playbook.tables import TERMS


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensors:
    """Tensors of a stage: where each is born and dies, as segment and row of one micro-batch.

    `size` is in bytes, `template` an index into `Stage.templates`. `forward_row` is the row of the stage's
    next forward in which a tensor of backward goes, −1 for none. Of tensors that are `alone` a rank holds
    those of one stage.
    """

    birth_segment: Ints
    birth_row: Ints
    death_segment: Ints
    death_row: Ints
    size: Ints
    term: Ints
    when: Ints
    template: Ints
    forward_row: Ints
    alone: Flags

    def __len__(self) -> int:
        return len(self.size)

    def take(self, index: NDArray[Any]) -> "Tensors":
        """Return some of them."""
        return Tensors(**{name: getattr(self, name)[index] for name in Tensors.__dataclass_fields__})


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
        unique: dict[int, int] = {}
        kinds = [unique.setdefault(id(block), len(unique)) for block in self.blocks]
        self.kinds = np.array(kinds, dtype=np.int64)
        self.first_of = [kinds.index(kind) for kind in range(len(unique))]
        self.unique = tuple(self.blocks[index] for index in self.first_of)
        self.templates: tuple[Tensor, ...] = tuple(t for block in self.unique for t in block.tensors)
        self.names = Names.none()
        self.segments = {letter: SegmentRows(letter, self.kinds, self.unique) for letter in "FBO"}

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """Rows of F, B and O."""
        return {letter: segment.rows(self.names, self.layers) for letter, segment in self.segments.items()}

    @cached_property
    def split(self) -> Split:
        """Backward in its two parts."""
        return Split(self.segments["B"], self.rows["B"], self.segments["O"])

    @cached_property
    def split_rows(self) -> dict[str, Rows]:
        """Rows of I and W."""
        return {letter: self.split.rows(letter) for letter in "IW"}

    def segment(self, letter: str) -> Rows:
        """Rows of a segment."""
        if letter == "G":
            return self._copies
        return self.split_rows[letter] if letter in "IW" else self.rows[letter]

    @cached_property
    def _after(self) -> SegmentRows:
        return SegmentRows("G", self.kinds, self.unique)

    @cached_property
    def _copies(self) -> Rows:
        return self._after.rows(self.names, self.layers)

    @cached_property
    def alternates(self) -> bool:
        """Whether some tensor is made only in runs that do not follow a backward."""
        return any(tensor.when == "sharded" for tensor in self.templates)

    def kept(self, letter: str, turn: Turn = ONLY) -> Ints:
        """Which rows of a segment run in a turn."""
        if letter == "O":
            return np.arange(len(self.rows["O"]))
        when = self.segment(letter).when
        late = self.split.late if letter == "B" and not turn.alike else np.zeros(len(when), dtype=bool)
        keep = runs_in_turn(when, late, turn)
        return np.flatnonzero(keep & ~self._apart if letter == "B" else keep)

    @cached_property
    def _apart(self) -> Flags:
        """Which rows of backward run only where it is split."""
        return self.segments["B"].column(lambda op: op.split_only).astype(bool)

    @cached_property
    def tensors(self) -> Tensors:
        """Tensors of every block where backward runs in one."""
        only = np.array([tensor.split_only for tensor in self.templates], dtype=bool)
        return self._all.take(~only[self._all.template]) if only.any() else self._all

    @cached_property
    def split_tensors(self) -> Tensors:
        """Tensors of every block where backward runs in two parts."""
        found = self._all
        born, dead = (found.birth_segment, found.birth_row), (found.death_segment, found.death_row)
        ends = split_ends(self.split, self.templates, self._spread, born, dead)
        names = ("birth_segment", "birth_row", "death_segment", "death_row")
        return replace(found, **dict(zip(names, ends, strict=True)))

    @cached_property
    def alone_bytes(self) -> int:
        """Bytes of the tensors that a rank holds of one stage only."""
        return int(self._all.size[self._all.alone].sum())

    @cached_property
    def steady(self) -> bool:
        """Whether every micro-batch has the same rows and tensors, the first and the last too."""
        columns = [self._all.when, *(rows.when for rows in self.rows.values())]
        return not any((when != EVERY).any() for when in columns)

    @cached_property
    def aligned(self) -> Tensors:
        """Tensors of `tensors`, with the ends that they have where backward runs in two parts."""
        only = np.array([tensor.split_only for tensor in self.templates], dtype=bool)
        return self.split_tensors.take(~only[self._all.template])

    def tensors_of(self, letter: str) -> Tensors:
        """Tensors as a segment's runs see them: one of I or W belongs to a split backward."""
        return self.split_tensors if letter in "IW" else self.tensors

    @cached_property
    def _spread(self) -> list[Ints]:
        """The blocks that hold each template."""
        instances = [np.flatnonzero(self.kinds == kind) for kind in range(len(self.unique))]
        return [instances[kind] for kind, block in enumerate(self.unique) for _ in block.tensors]

    @cached_property
    def _all(self) -> Tensors:
        spread = self._spread
        counts = np.array([len(each) for each in spread], dtype=np.int64)
        known: dict[tuple[At | None, int], tuple[int, Ints]] = {}  # many tensors live from one row to another
        births = [self._end(t.birth, each, known) for t, each in zip(self.templates, spread, strict=True)]
        deaths = [self._end(t.death, each, known) for t, each in zip(self.templates, spread, strict=True)]
        index = np.repeat(np.arange(len(self.templates)), counts)

        def column(read: Any) -> Ints:
            return np.array([read(tensor) for tensor in self.templates], dtype=np.int64)[index]

        return Tensors(
            birth_segment=np.repeat(np.array([segment for segment, _ in births], dtype=np.int64), counts),
            birth_row=joined([row for _, row in births]),
            death_segment=np.repeat(np.array([segment for segment, _ in deaths], dtype=np.int64), counts),
            death_row=joined([row for _, row in deaths]),
            size=column(lambda tensor: tensor.bytes if isinstance(tensor.bytes, int) else 0),
            term=column(lambda tensor: TERMS.index(tensor.term)),
            when=column(lambda tensor: WHEN.index(tensor.when)),
            template=index,
            alone=np.array([tensor.alone for tensor in self.templates], dtype=bool)[index],
            forward_row=joined(
                [self._crossing(t, each) for t, each in zip(self.templates, spread, strict=True)]
            )
            if self.alternates
            else np.full(len(index), -1),
        )

    def _crossing(self, tensor: Tensor, instances: Ints) -> Ints:
        """Rows of the next forward in which a tensor of backward goes."""
        if not tensor.crosses:
            return np.full(len(instances), -1)
        assert tensor.fwd_end is not None
        return self.segments["F"].place(tensor.fwd_end, instances)

    def _end(
        self, at: At | None, instances: Ints, known: dict[tuple[At | None, int], tuple[int, Ints]]
    ) -> tuple[int, Ints]:
        key = (at, id(instances))
        if key in known:
            return known[key]
        if at is None or at.segment == "S":
            known[key] = STATE, np.zeros(len(instances), dtype=np.int64)
        elif at == BEFORE_STEP:
            known[key] = STEP, np.full(len(instances), -1)
        else:
            letter = "B" if at.segment in "IW" else at.segment
            rows = self._after if letter == "G" else self.segments[letter]
            known[key] = SEGMENTS.index(letter), rows.place(at, instances)
        return known[key]


def widest(stages: Sequence[Stage]) -> int:
    """Place of the stage of a rank that has the most of what the rank holds of one stage only."""
    return max(range(len(stages)), key=lambda place: stages[place].alone_bytes)


def joined(parts: list[Ints]) -> Ints:
    """Put arrays one behind the other, or none."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

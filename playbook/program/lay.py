"""Lay the templates of one pipeline stage side by side: rows and tensors of one micro-batch as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from playbook.program.block import Block, Tensor
from playbook.program.op import At
from playbook.program.order import SEGMENTS, STATE, WHEN, Ints
from playbook.program.segment import Names, Rows, SegmentRows
from playbook.tables import TERMS


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensors:
    """Tensors of a stage: where each is born and dies, as segment and row of one micro-batch.

    `size` is in bytes, `template` an index into `Stage.templates`.
    """

    birth_segment: Ints
    birth_row: Ints
    death_segment: Ints
    death_row: Ints
    size: Ints
    term: Ints
    when: Ints
    template: Ints

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
        unique: dict[int, int] = {}
        kinds = [unique.setdefault(id(block), len(unique)) for block in self.blocks]
        self.kinds = np.array(kinds, dtype=np.int64)
        self.first_of = [kinds.index(kind) for kind in range(len(unique))]
        self.unique = tuple(self.blocks[index] for index in self.first_of)
        self.templates: tuple[Tensor, ...] = tuple(t for block in self.unique for t in block.tensors)
        self.names = Names.none()
        self._segments = {letter: SegmentRows(letter, self.kinds, self.unique) for letter in "FBO"}

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """Rows of F, B and O."""
        return {letter: segment.rows(self.names, self.layers) for letter, segment in self._segments.items()}

    @cached_property
    def tensors(self) -> Tensors:
        """Tensors of every block."""
        instances = [np.flatnonzero(self.kinds == kind) for kind in range(len(self.unique))]
        owners = [kind for kind, block in enumerate(self.unique) for _ in block.tensors]
        spread = [instances[kind] for kind in owners]
        counts = np.array([len(each) for each in spread], dtype=np.int64)
        births = [self._end(t.birth, each) for t, each in zip(self.templates, spread, strict=True)]
        deaths = [self._end(t.death, each) for t, each in zip(self.templates, spread, strict=True)]
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
        )

    def _end(self, at: At | None, instances: Ints) -> tuple[int, Ints]:
        if at is None or at.segment == "S":
            return STATE, np.zeros(len(instances), dtype=np.int64)
        return SEGMENTS.index(at.segment), self._segments[at.segment].place(at, instances)


def joined(parts: list[Ints]) -> Ints:
    """Put arrays one behind the other, or none."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

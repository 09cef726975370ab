import numpy as np
import pytest

from playbook.program.block import Block
from playbook.program.names import Names
from playbook.program.op import END, FIRST, LAST, START, At, Op, rows
from playbook.program.segment import SegmentRows

FIRST_BLOCK = Block(name="embedding", forward=rows([Op(owner="e", op="look")]))
LAYER = Block(name="layer", layered=True, forward=rows([Op(owner="", op="up"), Op(owner="", op="down")]))
LAST_BLOCK = Block(name="head", forward=rows([Op(owner="h", op="mm")]))
KINDS = np.array([0, 1, 1, 1, 2])


def segment(*unique, letter="F"):
    return SegmentRows(letter, KINDS, unique or (FIRST_BLOCK, LAYER, LAST_BLOCK))


def test_equal_blocks_share_one_row_list_where_nothing_moves():
    found = segment()
    assert len(found.hosts) == 3
    assert found.total == 8
    assert found.start.tolist() == [0, 1, 3, 5, 7]


def test_rows_carry_the_layer_of_their_block():
    names = Names.none()
    found = segment().rows(names, np.array([-1, 4, 5, 6, -1]))
    assert found.layer.tolist() == [-1, 4, 4, 5, 5, 6, 6, -1]
    assert [list(names.ops)[code] for code in found.op] == ["look", *["up", "down"] * 3, "mm"]


def test_an_absolute_owner_has_no_layer():
    bucket = Op(owner="bucket0", op="all_reduce", axis="dp", absolute=True)
    layer = Block(name="layer", layered=True, forward=rows([Op(owner="", op="up"), bucket]))
    found = segment(FIRST_BLOCK, layer, LAST_BLOCK).rows(Names.none(), np.array([-1, 0, 1, 2, -1]))
    assert found.layer.tolist() == [-1, 0, -1, 1, -1, 2, -1, -1]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (At("F", "/down#0"), [2, 4, 6]),
        (At("F", END, -1), [0, 2, 4]),
        (At("F", START, 1), [3, 5, 7]),
        (At("F", END, LAST), [7, 7, 7]),
        (At("F", START, FIRST), [0, 0, 0]),
        (At("F", "/up#0", 1, otherwise=END), [3, 5, 7]),
        (At("F", START, 9), [7, 7, 7]),
        (At("F", END, -9), [0, 0, 0]),
    ],
)
def test_places_are_seen_from_each_layer(at, expected):
    assert segment().place(at, np.array([1, 2, 3])).tolist() == expected


def test_backward_goes_from_the_last_block_to_the_first():
    back = [
        Block(name=block.name, layered=block.layered, backward=block.forward)
        for block in (FIRST_BLOCK, LAYER, LAST_BLOCK)
    ]
    found = segment(*back, letter="B")
    assert found.start.tolist() == [7, 5, 3, 1, 0]
    assert found.place(At("B", END, 1), np.array([1, 2, 3])).tolist() == [4, 2, 0]


def test_a_moved_row_is_found_in_the_block_that_issues_it():
    moved = Op(owner="", op="gather", issue=At("F", START, -1))
    layer = Block(name="layer", layered=True, forward=rows([moved, *LAYER.forward]))
    found = segment(FIRST_BLOCK, layer, LAST_BLOCK)
    assert found.lengths[found.host_of].tolist() == [2, 3, 3, 2, 1]
    assert found.place(At("F", "/gather#0"), np.array([1, 2, 3])).tolist() == [0, 2, 5]
    assert found.place(At("F", "/up#0"), np.array([1, 2, 3])).tolist() == [3, 6, 8]


def test_a_missing_row_is_named_with_its_block():
    with pytest.raises(ValueError, match="block 'layer' has no row '/x#0' in segment F"):
        segment().place(At("F", "/x#0"), np.array([1, 2]))


def test_the_optimizer_leads_its_segment():
    found = segment(letter="O")
    rows_of = found.rows(names := Names.none(), np.full(5, -1))
    assert [list(names.ops)[code] for code in rows_of.op] == ["optimizer"]

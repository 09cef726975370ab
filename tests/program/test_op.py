import pytest

from playbook.program.op import END, START, Op, insert, rows


def test_rows_are_named_by_owner_operation_and_occurrence():
    named = rows([Op(owner="mlp", op="mm"), Op(owner="", op="add"), Op(owner="mlp", op="mm")])
    assert [row.name for row in named] == ["mlp/mm#0", "/add#0", "mlp/mm#1"]


def test_a_collective_carries_its_axis_in_its_name():
    (row,) = rows([Op(owner="", op="all_gather", axis="dp")])
    assert (row.name, row.kind) == ("/all_gather@dp#0", "collective")


def test_rows_go_next_to_a_named_row_or_to_an_end():
    ops = rows([Op(owner="", op="a"), Op(owner="", op="b")])
    new = Op(owner="", op="new", name="new")
    assert [row.op for row in insert(ops, new, after="/a#0")] == ["a", "new", "b"]
    assert [row.op for row in insert(ops, new, before="/a#0")] == ["new", "a", "b"]
    assert [row.op for row in insert(ops, new, before=START)] == ["new", "a", "b"]
    assert [row.op for row in insert(ops, new, after=END)] == ["a", "b", "new"]


def test_an_unknown_row_is_refused_with_the_rows_there_are():
    with pytest.raises(ValueError, match=r"no row '/c#0'.*rows are /a#0"):
        insert(rows([Op(owner="", op="a")]), Op(owner="", op="new"), after="/c#0")

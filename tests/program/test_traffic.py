import pytest

import playbook as pb
from playbook.program.traffic import WIRE
from playbook.tables import TRAFFIC


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("send", 1.0),
    ],
)
def test_ring_factors_of_four_ranks(collective, factor):
    assert WIRE[collective](4) == factor


def test_a_group_of_one_sends_nothing():
    assert {name: WIRE[name](1) for name in WIRE if name != "send"} == dict.fromkeys(
        (name for name in WIRE if name != "send"), 0
    )


def test_selection_by_axis_collective_and_phase(scenario):
    found = pb.traffic(scenario(dp=2, zero=3))
    gathers = found.select(axis="dp", collective="all_gather")
    assert gathers.count == 10
    assert gathers.select(phase="F").count == gathers.select(phase="B").count == 5
    assert found.select(collective="reduce_scatter").count == 5
    assert found.select(axis="tp").count == 0


def test_sums_by_collective_are_those_of_the_selection(scenario):
    found = pb.traffic(scenario(dp=2, zero=3))
    assert found.by_collective == {
        "all_gather@dp": found.select(collective="all_gather").payload_bytes,
        "reduce_scatter@dp": found.select(collective="reduce_scatter").payload_bytes,
    }


def test_the_table_is_keyed_by_ids(scenario):
    s = scenario(dp=2, zero=3)
    table, program = pb.traffic(s).table, pb.program(s)
    assert tuple(table.columns) == TRAFFIC
    assert set(table["op"]) <= set(program.ids())
    assert table["payload_bytes"].sum() == pb.traffic(s).payload_bytes
    assert table["wire_bytes"].sum() == pb.traffic(s).wire_bytes

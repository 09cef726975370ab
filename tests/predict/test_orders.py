import pytest

import playbook as pb
from playbook.predict.orders import columns_of, copied, near, order_of, pipeline, routes
from playbook.program.order import Columns
from tests.shapes import scenario_of


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "dualpipe"])
def test_arrays_and_runs_say_the_same(name):
    s = scenario_of(pp=4, schedule=name, global_batch=8)
    for rank in range(4):
        want, have = Columns.of(order_of(s, rank)), columns_of(s, rank, pipeline(s))
        for column in ("segment", "stage", "microbatch"):
            assert getattr(have, column).tolist() == getattr(want, column).tolist()


def test_one_stage_accumulates_whatever_the_schedule():
    s = scenario_of(schedule="zb-h1", global_batch=2)
    assert [run.segment for run in order_of(s, 0)] == ["F", "B", "F", "B"]


def test_neighbours_on_one_rank_are_found_where_a_v_turns():
    s = scenario_of(pp=2, schedule="zbv", global_batch=4)
    assert routes(s) == ((0, 1, 1, 0), 1)
    assert [near(s, slot) for slot in range(4)] == [
        (False, False),
        (False, True),
        (True, False),
        (False, False),
    ]


def test_a_bidirectional_pipeline_has_a_copy_of_every_stage_and_sums_those_on_two_ranks():
    four = scenario_of(pp=4, schedule="dualpipe", global_batch=12)
    three = scenario_of(pp=3, schedule="dualpipe", global_batch=12, stage_layers=(1, 2, 1))
    assert [copied(pipeline(four), rank) for rank in range(4)] == [[0, 7], [1, 6], [2, 5], [3, 4]]
    assert [copied(pipeline(three), rank) for rank in range(3)] == [[0, 5], [], [2, 3]]
    assert [run.segment for run in order_of(four, 1)][-2:] == ["G", "G"]
    assert order_of(three, 1)[-1].segment != "G"


def test_an_order_of_ones_own_takes_the_place_of_a_schedule(tmp_path):
    named = scenario_of(pp=2, schedule="zbv", global_batch=4)
    path = tmp_path / "own.csv"
    pipeline(named).to_csv(path)
    own = scenario_of(pp=2, chunks=2, schedule=str(path), global_batch=4)
    assert order_of(own, 1) == order_of(named, 1)
    assert pb.training_memory(own).per_stage == pb.training_memory(named).per_stage


def test_an_order_with_more_stages_on_one_rank_than_on_another_is_refused(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("0F0,2F0,2B0,0B0\n1F0,1B0\n")
    with pytest.raises(ValueError, match="passes 3 stages but pp=2 x chunks=2 = 4; give every rank 2"):
        order_of(scenario_of(pp=2, chunks=2, schedule=str(path), global_batch=1), 0)

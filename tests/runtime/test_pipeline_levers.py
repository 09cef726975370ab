import pytest

from playbook.program.schedule import schedule
from playbook.runtime.pipeline_levers import read_cost, read_order, schedule_of, take_order, timed
from playbook.runtime.strategy_run import strategy_run

CSV = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def test_a_cost_is_a_number_or_one_for_each_stage():
    assert read_cost("forward", 2) == 2.0
    assert read_cost("forward", [1, 2.5]) == (1.0, 2.5)
    with pytest.raises(ValueError, match="forward=-1"):
        read_cost("forward", [1, -1])


def test_an_order_is_a_schedule_its_text_or_a_file(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(CSV)
    given = schedule("1f1b", 2, 2)
    assert read_order(given) is given
    for value in (CSV, file, str(file)):
        assert read_order(value).to_csv() == CSV
    with pytest.raises(TypeError, match="order=3 must be a Schedule, CSV text"):
        read_order(3)
    with pytest.raises(ValueError, match="order, row 1, column 2: '0X1' is not a pipeline action"):
        read_order("0F0,0X1")


def test_an_order_brings_its_sizes_along():
    levers, own = {}, {"order": schedule("zbv", 2, 6)}
    take_order(levers, own, ranks=2)
    assert levers == {"chunks": 2, "microbatches": 6, "schedule": "zbv.csv"}


@pytest.mark.parametrize(
    ("levers", "ranks", "text"),
    [
        ({}, 4, r"the order has 2 ranks and the pool 4; use Pool\(2\)"),
        ({"microbatches": 3}, 2, "microbatches=3 but own order has 2; leave microbatches out"),
        ({"chunks": 2}, 2, "chunks=2 but own order has 1"),
        ({"schedule": "gpipe"}, 2, "order and schedule=gpipe are both given"),
    ],
)
def test_an_order_that_does_not_fit_is_refused(levers, ranks, text):
    with pytest.raises(ValueError, match=text):
        take_order(levers, {"order": CSV}, ranks)


def test_a_file_as_schedule_is_read_before_any_rank_is_asked(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(CSV)
    run = strategy_run("pp", 2, schedule=str(file))
    assert run.own["order"].to_csv() == CSV
    assert schedule_of(run.scenario, run.own).microbatches == run.scenario.microbatches == 2
    with pytest.raises(ValueError, match="there is no such file"):
        strategy_run("pp", 2, schedule=str(tmp_path / "other.csv"))


def test_an_order_that_waits_in_a_circle_is_refused_with_the_circle():
    stuck = "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"
    with pytest.raises(ValueError, match="deadlock: rank 0 stops at 0B0, which waits for 1B0"):
        strategy_run("pp", 2, order=stuck)


def test_costs_that_do_not_fit_the_stages_are_refused():
    with pytest.raises(ValueError, match="forward has 3 values"):
        strategy_run("pp", 2, forward=[1, 2, 3], microbatches=2)


def test_levers_time_the_schedule_in_units():
    # 1F1B, two ranks, one micro-batch: F, hop, F, B, hop, B
    assert timed(schedule("1f1b", 2, 1), {"forward": 2.0, "backward": 3.0, "latency": 0.5}).makespan == 11.0
    assert timed(schedule("1f1b", 2, 1), {}).makespan == 6.0

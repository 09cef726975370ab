import numpy as np

from playbook.pictures.pipeline import pipeline_picture
from playbook.pictures.pipeline_forward import forward_orders
from playbook.pictures.pipeline_orders import timed_orders
from playbook.pictures.pipeline_setting import Costs, Setting


def grid(*names: str, **given):
    setting = Setting(**given)
    orders = forward_orders(timed_orders(names, setting), setting)
    return pipeline_picture(orders, setting)


def test_four_micro_batches_over_four_ranks_fill_seven_slots_of_which_three_are_idle():
    picture = grid("gpipe", "1f1b", stages=4, microbatches=4)
    (lane,) = picture["schedules"]
    start = np.frombuffer(lane["start"], "<f4").reshape(4, 4)
    assert start.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]
    assert lane["makespan"] == 7
    assert lane["idle"][0] == "42.9\u2009%"
    assert lane["formula"]["text"] == "(p − 1)/(m + p − 1) = 3/7"
    assert "7 slots" in picture["headline"][0]
    assert "3/7 = 42.9\u2009%" in picture["headline"][0]
    assert "3/19 = 15.8\u2009%" in picture["headline"][1]


def test_a_placement_of_its_own_has_a_grid_of_its_own():
    assert len(grid("gpipe", "interleaved-1f1b", "1f1b")["schedules"]) == 2


def test_what_more_micro_batches_buy_is_the_textbooks_curve():
    (line,) = grid("gpipe", stages=4, microbatches=4)["gain"]["lines"]
    assert line["points"][0] == [4, 42.857]
    assert dict(map(tuple, line["points"]))[16] == 15.789


def test_with_latency_no_fraction_is_claimed():
    picture = grid("gpipe", stages=2, microbatches=2, costs=Costs(latency=0.5))
    assert picture["schedules"][0]["makespan"] == 3.5
    assert "/" not in picture["headline"][0]


def test_one_rank_is_never_idle():
    assert "never idle" in grid("gpipe", stages=1, microbatches=4)["headline"][0]

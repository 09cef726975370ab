import pytest

from playbook.pictures.pipeline_orders import find_order, timed_order
from playbook.pictures.pipeline_scatter import field_of, scatter_headline, scatter_picture
from playbook.pictures.pipeline_setting import Setting


def field(**given):
    setting = Setting(**given)

    def timed(name: str):
        order = find_order(name, setting, {})
        return timed_order(order, setting, order.chunks)

    return field_of([], setting.stages, setting.microbatches, setting.chunks, timed)


def test_every_schedule_is_a_point_at_its_throughput_and_memory():
    points = {point["name"]: point for point in scatter_picture(field(), ["1f1b"], 1.0)["points"]}
    assert len(points) == 12
    # 24 of 33 units are work, and rank 0 holds p micro-batches; GPipe holds all eight.
    assert points["1f1b"]["y"] == pytest.approx(24 / 33)
    assert points["1f1b"]["x"] == 4
    assert points["gpipe"]["x"] == 8
    assert points["1f1b"]["shown"]
    assert not points["gpipe"]["shown"]


def test_a_schedule_that_ran_has_its_measured_throughput_too():
    points = scatter_picture(field(), [], 1.0, {"1f1b": 0.3, "gpipe": None})["points"]
    assert [(point["name"], point["ran"]) for point in points if "ran" in point] == [("1f1b", 0.7)]


def test_nothing_on_the_front_is_beaten_in_both():
    found = field()
    for one in found.front:
        for other in found.orders:
            better = other.throughput > one.throughput + 1e-9
            assert not (better and max(other.peaks) <= max(one.peaks))
    assert found.front[0].order.name == "v-min"


def test_a_size_that_a_schedule_refuses_is_told_with_its_reason():
    setting = Setting()

    def timed(name: str):
        if name == "dualpipe":
            raise ValueError("microbatches=7 is odd; use 6 or 8")
        return timed_order(find_order(name, setting, {}), setting, 1)

    refused = scatter_picture(field_of([], 4, 8, 2, timed), [], 1.0)["refused"]
    assert refused == [{"title": "DualPipe", "reason": "microbatches=7 is odd; use 6 or 8"}]


def test_the_headline_names_the_best_within_a_cap():
    assert scatter_headline(field(), 3.0)[0].startswith("Within 3\u2009A the best is ")
    assert scatter_headline(field(), 0.5)[0] == "No schedule fits in 0.5\u2009A:"


def test_on_one_rank_no_schedule_beats_another():
    # All but those that run forwards first, and the two DualPipes, hold one micro-batch.
    finding = "Eight of 12 schedules tie for the best: 100.0\u2009% at work in 1\u2009A."
    assert scatter_headline(field(stages=1), 0.0)[0] == finding
    within = scatter_headline(field(stages=1), 2.0)
    assert within[0] == "Within 2\u2009A 1F1B and 7 others are best: 100.0\u2009% at work in 1\u2009A."
    alone = scatter_headline(field(stages=1, microbatches=1), 0.0)
    assert alone[0].startswith("All 12 schedules tie for the best")
    assert alone[1] == "The order makes no difference here."


def test_too_many_actions_are_refused_with_a_number_that_works():
    with pytest.raises(ValueError, match="use microbatches=104 or fewer"):
        field(stages=64, microbatches=512)

from dataclasses import replace

import pytest

from playbook.pictures.pipeline_emulation import emulation_levers, run_note, stage_costs, unit_seconds
from playbook.pictures.pipeline_forward import forward_orders
from playbook.pictures.pipeline_orders import timed_orders
from playbook.pictures.pipeline_setting import Costs, Cut, Setting
from playbook.program.schedule import schedule


def test_no_emulated_action_is_shorter_than_twenty_milliseconds():
    long = timed_orders(["1f1b"], Setting(microbatches=64, costs=Costs.parse("1:3:3")))
    assert unit_seconds(long) == pytest.approx(0.02)
    short = timed_orders(["1f1b"], Setting(stages=2, microbatches=2))
    assert unit_seconds(short) == pytest.approx(0.04)
    assert "40 ms a unit" in run_note(short)


def test_schedules_of_one_picture_run_at_one_pace():
    plain, interleaved = timed_orders(["1f1b", "interleaved-1f1b"], Setting(microbatches=32))
    unit_s = unit_seconds([plain, interleaved])
    assert unit_s == pytest.approx(0.02)
    assert emulation_levers(plain, unit_s)["forward"] == 2
    assert emulation_levers(interleaved, unit_s)["forward"] == 1


def test_the_emulated_model_has_a_layer_for_every_stage():
    for name, layers in (("interleaved-1f1b", 8), ("zbv", 8), ("dualpipe", 4)):
        (one,) = timed_orders([name], Setting())
        assert emulation_levers(one, 0.02)["model"].layers == layers


def test_a_split_backward_has_two_costs_and_a_pair_one():
    costs = Costs(backward_input=1.5, backward_weight=0.5, overlap=0.8)
    (zbv,) = timed_orders(["zbv"], Setting(costs=costs))
    found = stage_costs(zbv)
    assert (found["forward"], found["backward_input"], found["backward_weight"]) == (1, 1.5, 0.5)
    (dual,) = timed_orders(["dualpipe-v"], Setting(costs=costs))
    assert stage_costs(dual)["overlap"] == pytest.approx(0.8 * 3)


def test_uneven_stages_have_a_cost_each():
    (one,) = timed_orders(["1f1b"], Setting(cut=Cut(head=0.5)))
    assert stage_costs(one)["forward"] == [1, 1, 1, 1.5]
    assert stage_costs(one)["backward"] == [2, 2, 2, 3]


def test_the_latency_goes_with_the_run():
    (one,) = timed_orders(["1f1b"], Setting(costs=Costs(latency=0.5)))
    assert emulation_levers(one, 0.02)["latency"] == 0.5


def test_an_order_of_ones_own_runs_as_it_stands():
    own = {"mine": replace(schedule("1f1b", 2, 3), name="mine")}
    (one,) = timed_orders(["mine"], Setting(stages=2, microbatches=3), own)
    levers = emulation_levers(one, 0.02)
    assert levers["order"] is own["mine"]
    assert "schedule" not in levers


def test_what_cannot_be_run_is_said_in_words():
    free = timed_orders(["zbv"], Setting(costs=Costs(backward_weight=0)))
    assert run_note(free) == "An action of no cost cannot be run; give F, I and W above 0."
    setting = Setting()
    forward = forward_orders(timed_orders(["gpipe"], setting), setting)
    assert "choose the whole step" in run_note(forward)
    endless = timed_orders(["gpipe"], Setting(stages=8, microbatches=4096))
    assert "use fewer micro-batches" in run_note(endless)

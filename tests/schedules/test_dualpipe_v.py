import pytest

from playbook.program.schedule import schedule
from playbook.schedules import find_plan
from playbook.schedules.plan import ChunkCosts


def test_the_order_of_a_small_pipeline():
    assert schedule("dualpipe-v", 2, 4).to_csv().splitlines() == [
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,"
        "(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3",
        "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,"
        "(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3",
    ]


@pytest.mark.parametrize(
    ("stages", "microbatches", "makespan", "idle"), [(4, 8, 54, 6), (4, 16, 102, 6), (8, 64, 398, 14)]
)
def test_a_pair_as_long_as_its_halves_idles_2p_minus_2(stages, microbatches, makespan, idle):
    timed = schedule("dualpipe-v", stages, microbatches).simulate()
    assert (timed.makespan, timed.idle) == (makespan, idle)
    assert timed.peak_live == (2 * stages + 1,) * stages


def test_eight_ranks_idle_the_published_share_of_the_work():
    timed = schedule("dualpipe-v", 8, 64).simulate()
    assert timed.idle_over_ideal == pytest.approx(0.0365, abs=5e-5)


@pytest.mark.parametrize("overlap", [2.0, 2.25, 2.9])
def test_with_a_shorter_pair_the_idlest_rank_waits_as_the_readme_says(overlap):
    timed = schedule("dualpipe-v", 8, 32).simulate(overlap=overlap)
    assert timed.makespan - min(timed.work) == pytest.approx(7 * (overlap + 2 - 3))


def test_with_unequal_costs_the_formula_fails_and_is_noted():
    timed = schedule("dualpipe-v", 4, 8).simulate(backward_input=1.2, backward_weight=0.8)
    plan, costs = find_plan("dualpipe-v"), ChunkCosts(backward_input=1.2, backward_weight=0.8)
    assert timed.makespan == pytest.approx(55.2)
    assert plan.idle(4, 8, 2, costs) == pytest.approx(7.8)
    assert "differ" in (plan.cost_note(costs) or "")


def test_pairs_whose_partner_does_not_exist_run_alone():
    made = schedule("dualpipe-v", 4, 3)
    assert made.simulate().idle == 11
    assert "less than 2 stages = 8" in (made.note or "")


def test_torch_wants_as_many_micro_batches_as_stages():
    assert schedule("dualpipe-v", 4, 8, framework="torch").chunks == 2
    with pytest.raises(
        ValueError, match="microbatches=7 with stages=4.*use microbatches=8, stages=3, or zbv"
    ):
        schedule("dualpipe-v", 4, 7, framework="torch")
    with pytest.raises(ValueError, match="use microbatches=8, or zbv"):
        schedule("dualpipe-v", 4, 1, framework="torch")

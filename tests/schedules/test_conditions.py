import pytest

from playbook.schedules.conditions import down_and_up, equal_costs, exactly, light_weights
from playbook.schedules.plan import ChunkCosts


def test_another_number_of_chunks_is_refused_with_the_one_that_works():
    assert exactly(1, "x", "why", "chunks=1")(4, 8, 1) is None
    assert exactly(1, "x", "why", "chunks=1, or y")(4, 8, 2) == (
        "chunks=2: x gives a rank 1 chunk, why; use chunks=1, or y"
    )
    assert "use chunks=2" in (down_and_up("zbv")(4, 8, 1) or "")


@pytest.mark.parametrize("cost", [0.1, 1, 7 / 3])
def test_equal_costs_in_any_unit_are_no_objection(cost):
    costs = ChunkCosts(forward=cost, backward_input=cost, backward_weight=cost)
    assert equal_costs(costs) is None
    assert light_weights(costs) is None


def test_unequal_costs_are_named():
    assert "forward=2" in (equal_costs(ChunkCosts(forward=2)) or "")
    assert light_weights(ChunkCosts(forward=2)) is None
    assert "backward-weight=1.5 is more than 1" in (light_weights(ChunkCosts(backward_weight=1.5)) or "")

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import benchmarks
import playbook as pb
from playbook.planner import find_schedule
from playbook.schedules.orders import check_orders

CASES = json.loads((Path(benchmarks.__file__).parent / "uneven_pipelines.json").read_text())["cases"]


def asked(case):
    return {key: value for key, value in case.items() if key not in ("name", "reason")}


@pytest.fixture(scope="module")
def uneven():
    """Each committed case, searched with every stage held once and with up to two copies."""
    return {
        case["name"]: (find_schedule(**asked(case), copies=1), find_schedule(**asked(case))) for case in CASES
    }


def test_there_are_six_cases_of_three_to_eight_ranks_with_reasons():
    assert len(CASES) == 6
    assert all(3 <= case["stages"] <= 8 and 5 <= case["microbatches"] <= 16 for case in CASES)
    assert all(len(case["reason"]) > 40 for case in CASES)


def test_no_known_schedule_under_the_cap_is_shorter(uneven):
    for once, both in uneven.values():
        for found in (once, both):
            able = [one for one in found.known if one.feasible]
            assert all(found.makespan <= one.makespan + 1e-9 for one in able)
            assert found.best.feasible
            assert found.lower_bound <= found.makespan + 1e-9


def test_with_one_copy_of_the_stages_at_least_three_cases_are_strictly_shorter(uneven):
    # The case without any known order under its cap is not counted.
    pairs = [(once.makespan, once.best_known.makespan) for once, _ in uneven.values() if once.best_known]
    assert sum(found < known - 1e-6 for found, known in pairs) >= 3


def test_a_second_copy_never_makes_it_longer(uneven):
    assert all(both.makespan <= once.makespan + 1e-9 for once, both in uneven.values())


@settings(max_examples=25, deadline=None)
@given(
    stages=st.integers(1, 4),
    microbatches=st.integers(1, 6),
    chunks=st.integers(1, 2),
    copies=st.integers(1, 2),
    room=st.sampled_from([None, 0, 1, 3]),
    split=st.booleans(),
    data=st.data(),
)
def test_what_is_found_is_whole_fits_and_is_never_beaten(
    stages, microbatches, chunks, copies, room, split, data
):
    costs = st.lists(st.floats(0.1, 3), min_size=stages * chunks, max_size=stages * chunks)
    given_costs = {name: data.draw(costs) for name in ("forward", "backward_input", "backward_weight")}
    cap = None if room is None else chunks + room
    found = find_schedule(
        stages,
        microbatches,
        chunks=chunks,
        comm=data.draw(st.sampled_from([0.0, 0.7])),
        memory_cap=cap,
        copies=copies,
        split=split,
        effort=0.05,
        **given_costs,
    )
    made = found.schedule
    check_orders(made.orders, len(made.placement), microbatches, made.chains)
    assert cap is None or max(found.simulation.peak_live) <= cap
    assert found.lower_bound <= found.makespan + 1e-9
    assert all(found.makespan <= one.makespan + 1e-9 for one in found.known if one.feasible)
    assert split or not any(action.kind in "IW" for order in made.orders for action in order)


def test_the_same_arguments_find_the_same_order():
    again = [find_schedule(**asked(CASES[5]), effort=0.2) for _ in range(2)]
    assert again[0].schedule.to_csv() == again[1].schedule.to_csv()


def test_it_is_public_and_its_order_is_a_schedule_like_any_other(tmp_path):
    found = pb.find_schedule(3, 5, forward=[1, 1, 2], memory_cap=3)
    path = tmp_path / "found.csv"
    found.schedule.to_csv(path)
    again = pb.schedule(path)
    assert found.schedule.name == "found"
    assert again.chains == found.schedule.chains
    assert again.simulate(forward=[1, 1, 2]).makespan == found.makespan == found.simulation.makespan


def test_a_cheaper_fused_backward_is_used():
    found = find_schedule(2, 4, backward=1.2, backward_input=1, backward_weight=1, copies=1)
    kinds = {action.kind for order in found.schedule.orders for action in order}
    assert "B" in kinds
    assert found.makespan <= min(one.makespan for one in found.known if one.feasible) + 1e-9


def test_a_cap_that_no_order_keeps_says_the_smallest_that_works():
    with pytest.raises(ValueError, match="memory_cap=1 on rank 0: .* use 2 or more"):
        find_schedule(2, 4, chunks=2, memory_cap=1)
    assert max(find_schedule(2, 4, chunks=2, memory_cap=2, effort=0.1).simulation.peak_live) == 2


def test_equal_stages_without_a_cap_reach_the_bound():
    found = find_schedule(4, 8, copies=1)
    # (p − 1) F + m (F + I + W), which no order beats.
    assert (found.makespan, found.lower_bound, found.gap) == (27, 27, 0)


@pytest.mark.parametrize("given", [(16, 64, 1), (4, 8, 2)])
def test_no_known_order_ends_as_soon_and_holds_less(given):
    p, m, v = given
    found = find_schedule(p, m, chunks=v, copies=1, effort=0.1)
    rivals = [one for one in found.known if one.copies == 1 and one.makespan <= found.makespan + 1e-9]
    assert rivals
    assert found.best.peak <= min(one.peak for one in rivals)
    assert found.schedule.name == "found"

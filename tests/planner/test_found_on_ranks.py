import pytest

import playbook as pb


@pytest.mark.dist
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("ranks", "placement", "asked"),
    [(3, (0, 1, 2), {"copies": 1, "memory_cap": 2}), (2, (0, 1, 1, 0), {"copies": 2, "memory_cap": 3})],
)
def test_a_found_order_gives_the_gradients_of_the_whole_model(ranks, placement, asked):
    found = pb.find_schedule(ranks, 4, forward=[1] * (ranks - 1) + [2], effort=0.2, **asked)
    assert found.schedule.placement == placement
    with pb.Pool(ranks=ranks, backend="gloo") as pool:
        run = pool.submit("pp", order=found.schedule).result(timeout=100)
    assert run.parity.ok.all()

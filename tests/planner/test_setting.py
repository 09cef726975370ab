import pytest

from playbook.planner.setting import Setting

PLAIN = {
    "stages": 3,
    "microbatches": 4,
    "chunks": 2,
    "forward": 1,
    "backward_input": 2,
    "backward_weight": 0.5,
    "backward": None,
    "comm": 0,
    "memory_cap": None,
    "split": True,
    "copies": 1,
}


def test_one_number_stands_for_every_stage_and_a_fused_backward_is_the_sum_of_its_parts():
    setting = Setting.of(**PLAIN)
    assert setting.forward == (1.0,) * 6
    assert setting.backward == (2.5,) * 6
    assert setting.comm == (0.0,) * 5
    assert setting.depth == 6


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"forward": [1, 2]}, "forward has 2 values for 6 stages; give one number, or 6"),
        ({"comm": [1, 2]}, "comm has 2 values for 5 borders between stages"),
        ({"backward_weight": -1}, "backward_weight=-1 must be at least 0 and finite"),
        ({"stages": 0}, "stages=0 must be at least 1"),
        ({"copies": 3}, "copies=3; use 1, or 2 to try bidirectional orders too"),
        ({"memory_cap": [4, 4]}, "memory_cap has 2 numbers for 3 ranks"),
        (
            {"memory_cap": 1},
            "memory_cap=1 on rank 0: a micro-batch alone has 2 stage-chunks alive .* use 2 or",
        ),
        ({"memory_cap": [4, 1, 4]}, "memory_cap=1 on rank 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(given, text):
    with pytest.raises(ValueError, match=text):
        Setting.of(**{**PLAIN, **given})


def test_a_cost_that_is_no_number_is_named():
    with pytest.raises(TypeError, match="forward='x' must be a number"):
        Setting.of(**{**PLAIN, "forward": ["x"] * 6})


@pytest.mark.parametrize(
    ("cap", "text"),
    [
        (2.5, "memory_cap=2.5 counts stage-chunks, which are whole numbers; use 2 or 3"),
        (1.5, "memory_cap=1.5 counts stage-chunks, which are whole numbers; use 2"),
        ("3", "memory_cap='3' must be a whole number of stage-chunks, or one a rank; use memory_cap=2 or"),
    ],
)
def test_a_cap_that_is_not_whole_is_refused_with_the_whole_ones_beside_it(cap, text):
    with pytest.raises(TypeError, match=text):
        Setting.of(**{**PLAIN, "memory_cap": cap})

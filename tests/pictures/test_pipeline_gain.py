from playbook.pictures.pipeline_gain import gain_picture
from playbook.pictures.pipeline_orders import timed_orders
from playbook.pictures.pipeline_setting import Costs, Setting


def gain(*names: str, **given):
    setting = Setting(**given)
    return gain_picture(timed_orders(names, setting), setting)


def test_the_idle_share_falls_as_the_textbook_says():
    (line,) = gain("gpipe", "1f1b")["lines"]
    # (p - 1) / (m + p - 1) at m = 4, 8, 16, 32: 3/7, 3/11, 3/19, 3/35.
    shares = dict(map(tuple, line["points"]))
    assert [shares[m] for m in (4, 8, 16, 32)] == [42.857, 27.273, 15.789, 8.571]
    assert line["title"] == "GPipe, 1F1B"


def test_what_four_and_eight_times_p_buy_is_said():
    words = gain("gpipe")["words"]
    assert words == (
        "GPipe: from m = 4 to 16 (4p) the idle share falls from 43\u2009% to 16\u2009%; "
        "doubling again buys 7 points more."
    )


def test_p_and_its_multiples_are_marked_and_the_chosen_number_is_a_point():
    found = gain("1f1b", microbatches=10)
    assert [m for m, _ in found["marks"]] == [4, 8, 16, 32]
    assert found["now"] == 10
    assert 10 in [m for m, _ in found["lines"][0]["points"]]


def test_with_latency_the_curve_is_simulated():
    slow = dict(map(tuple, gain("1f1b", costs=Costs(latency=0.5))["lines"][0]["points"]))
    plain = dict(map(tuple, gain("1f1b")["lines"][0]["points"]))
    assert all(slow[m] > plain[m] for m in (4, 8, 16))


def test_a_long_step_is_never_simulated_beside_a_slider():
    found = gain("1f1b", stages=32, microbatches=128, costs=Costs(latency=0.5))
    assert found == {} or all(m <= 128 for m, _ in found["lines"][0]["points"])


def test_one_rank_has_nothing_to_gain():
    assert gain("gpipe", stages=1) == {}

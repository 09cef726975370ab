import pytest

from playbook.pictures.pipeline_orders import TITLES, takes_chunks, timed_orders
from playbook.pictures.pipeline_setting import Costs, Setting
from playbook.program.schedule import schedule
from playbook.schedules import plans


def test_every_schedule_of_the_folder_has_a_title():
    assert set(TITLES) == set(plans())


def test_schedules_that_take_any_number_of_chunks_are_known():
    able = [name for name in plans() if takes_chunks(name)]
    assert able == ["interleaved-1f1b", "interleaved-zero-bubble", "looped-bfs"]


def test_no_schedule_at_all_is_refused():
    with pytest.raises(ValueError, match="choose at least one"):
        timed_orders([], Setting())


def test_more_than_four_are_refused_with_where_all_are_compared():
    with pytest.raises(ValueError, match=r"five schedules are chosen; one clock holds four\..*scatter"):
        timed_orders(["gpipe", "1f1b", "zb-h1", "zb-h2", "zbv"], Setting())


def test_all_schedules_do_the_same_work_on_one_clock():
    for first in ("gpipe", "zb-h1", "v-half", "looped-bfs"):
        orders = timed_orders([first, "interleaved-1f1b", "dualpipe", "dualpipe-v"], Setting())
        assert [one.timed.ideal for one in orders] == pytest.approx([48] * 4)


def test_an_order_of_ones_own_is_shown_at_its_own_size_only():
    own = {"mine": schedule("1f1b", 2, 3)}
    (one,) = timed_orders(["mine"], Setting(stages=2, microbatches=3), own)
    assert one.timed.makespan == 3 * 3 + 3
    with pytest.raises(ValueError, match="microbatches=8, but the order mine has 3"):
        timed_orders(["mine"], Setting(stages=2, microbatches=8), own)


def test_a_slow_rank_slows_its_own_actions():
    (one,) = timed_orders(["gpipe"], Setting(stages=2, microbatches=1, straggler=(1, 2.0)))
    assert one.timed.duration.tolist() == [1, 2, 2, 4]


def test_recomputation_lengthens_backward_by_a_forward():
    (one,) = timed_orders(["gpipe"], Setting(stages=2, microbatches=1, costs=Costs(recompute=True)))
    assert one.timed.makespan == 2 * (1 + 3)


def test_peaks_are_counted_in_activations_of_a_ranks_whole_share():
    (one,) = timed_orders(["interleaved-1f1b"], Setting())
    assert one.peaks == (5.5, 4.5, 3.5, 2.5)
    assert one.worst == 0

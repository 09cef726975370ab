from playbook.planner.known import known_orders, try_order
from playbook.program.schedule import schedule
from playbook.schedules.registry import plans


def test_every_schedule_of_the_folder_is_timed_or_refused_with_its_own_words(make_setting):
    known, refused = known_orders(make_setting(stages=4, microbatches=8))
    assert {one.name for one in known} | set(refused) == set(plans())
    assert "zbv" in refused
    gpipe = next(one for one in known if one.name == "gpipe")
    # (p − 1)(F + B) + m (F + B) with F = 1 and B = 2.
    assert (gpipe.makespan, gpipe.peak, gpipe.copies) == (33, 8, 1)
    assert gpipe.feasible


def test_an_order_over_the_cap_says_where_and_by_how_much(make_setting):
    setting = make_setting(stages=4, microbatches=8, memory_cap=[4, 4, 1, 1])
    one = try_order(schedule("1f1b", 4, 8), setting)
    assert one.objection == "holds 2 on rank 2, cap 1"
    assert not one.feasible


def test_split_backwards_are_no_answer_where_they_must_stay_whole(make_setting):
    setting = make_setting(stages=4, microbatches=8, split=False)
    assert try_order(schedule("zb-h1", 4, 8), setting).objection == "splits backwards"
    assert try_order(schedule("1f1b", 4, 8), setting).feasible


def test_two_copies_are_no_answer_where_one_is_allowed(make_setting):
    one = try_order(schedule("dualpipe", 4, 8), make_setting(stages=4, microbatches=8))
    assert one.objection == "holds every stage 2 times"

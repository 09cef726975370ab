import numpy as np

from playbook.pictures.pipeline import pipeline_picture
from playbook.pictures.pipeline_orders import timed_orders
from playbook.pictures.pipeline_setting import Costs, Cut, Setting


def shown(*names: str, **setting):
    made = Setting(**setting)
    return pipeline_picture(timed_orders(names, made), made)


def waits_in(lane) -> dict[str, np.ndarray]:
    row, cause = np.frombuffer(lane["waits"], "<u4").reshape(4, -1)[:2]
    waited, in_flight = np.frombuffer(lane["waits"], "<f4").reshape(4, -1)[2:]
    return {"row": row, "cause": cause, "waited": waited, "in_flight": in_flight}


def test_the_bubble_is_the_textbooks_in_both_conventions():
    picture = shown("1f1b", microbatches=16)
    # (p - 1) / (m + p - 1) = 3 / 19 and (p - 1) / m = 3 / 16; 9 units are 3 forwards and 3 backwards of 2.
    assert picture["schedules"][0]["idle"] == ["15.8\u2009%", "18.8\u2009%", "9 units"]
    assert picture["schedules"][0]["formula"]["text"] == "(p − 1)(F + B) = 9"
    assert picture["headline"] == [
        "1F1B ends at 57 units and idles 15.8\u2009% of them.",
        "Rank 0 holds 4 micro-batches at its peak.",
    ]


def test_schedules_with_chunks_do_the_same_work_on_one_clock():
    picture = shown("1f1b", "interleaved-1f1b", "zbv")
    # Units are those of half a rank's layers: 24 units of work become 48, and 33 become 66.
    assert picture["work"] == 48
    assert [lane["makespan"] for lane in picture["schedules"]] == [66, 57, 51]
    assert picture["headline"] == [
        "Same work, three orders: 66 → 57 → 51 units.",
        "ZB-V idles 5.9\u2009% instead of 27.3\u2009%, in the memory of 1F1B.",
    ]
    assert picture["unit"] == "1 unit = forward of 1/2 of a rank's layers"


def test_the_latency_is_told_in_units_of_the_clock():
    costs = Costs(latency=0.5)
    assert shown("1f1b", "zbv", costs=costs)["hop"] == (
        "A hop takes 1 unit: latency 0.5 × 2, as F : I : W are those of a whole rank."
    )
    assert (
        shown("1f1b", costs=costs)["hop"] == "A hop takes 0.5 units: the latency, in the units of F : I : W."
    )
    assert shown("1f1b")["hop"] == ""


def test_blocks_are_packed_rank_by_rank():
    lane = shown("gpipe", stages=2, microbatches=2)["schedules"][0]
    assert np.frombuffer(lane["kind"], "u1").tolist() == [0, 0, 1, 1] * 2
    assert np.frombuffer(lane["microbatch"], "<u2").tolist()[:2] == [0, 1]
    assert lane["gap"]["words"].startswith("waits for B")


def test_the_two_halves_of_an_overlapped_pair_are_flagged_and_share_their_time():
    lane = shown("dualpipe-v", microbatches=8)["schedules"][0]
    kind = np.frombuffer(lane["kind"], "u1")
    first, second = np.flatnonzero(kind & 8), np.flatnonzero(kind & 4)
    assert first.size
    assert (second == first + 1).all()
    assert set((kind[first] & 3).tolist()) == {0}
    assert set((kind[second] & 3).tolist()) == {1}
    start = np.frombuffer(lane["start"], "<f4")
    assert (start[first] == start[second]).all()


def test_a_wait_names_what_it_was_for():
    lane = shown("1f1b", stages=2, microbatches=2)["schedules"][0]
    # Rank 0 runs F0 F1 to 2 and then waits for B0 of rank 1, which ends at 4: row 2 waits for row 5.
    waits = waits_in(lane)
    at = waits["row"].tolist().index(2)
    assert waits["cause"][at] == 5
    assert waits["waited"][at] == 2
    assert waits["in_flight"][at] == 0


def test_of_a_wait_the_part_under_way_is_told():
    lane = shown("1f1b", stages=2, microbatches=2, costs=Costs(latency=0.5))["schedules"][0]
    waits = waits_in(lane)
    at = waits["row"].tolist().index(2)
    # F0 arrives at 1.5, B0 of rank 1 runs 2.5 to 4.5 and arrives at 5.
    assert waits["waited"][at] == 3
    assert waits["in_flight"][at] == 0.5


def test_ranks_over_the_cap_are_told_with_the_times_at_which_they_are():
    picture = shown("gpipe", "1f1b", cap=4.0)
    gpipe, one_f_one_b = picture["schedules"]
    assert one_f_one_b["over"] == []
    # Rank 0 of GPipe starts its fifth forward at 4. Its first backward waits for 8 + 3 forwards and for three
    # backwards of 2, so it begins at 17, and the fourth ends at 25.
    assert gpipe["over"][0] == [0, 4, 25]
    assert picture["cap"] == {"value": 4, "words": "cap 4\u2009A"}
    assert picture["headline"][0] == "GPipe does not fit in 4\u2009A: rank 0 needs 8\u2009A."


def test_where_a_rank_holds_what_is_said_where_it_is_no_plain_row():
    plain, v = shown("1f1b", "zbv")["schedules"]
    assert plain["remark"] == ""
    assert v["remark"] == "Rank 0 holds stages 0 and 7 and the loss; rank 3 holds stages 3 and 4."


def test_a_heavy_head_costs_time_and_its_remark_says_what_the_formula_is_for():
    picture = shown("1f1b", cut=Cut(head=0.5))
    lane = picture["schedules"][0]
    # The last rank works 8 * 4.5 = 36 after three forwards and before three backwards: 3 + 36 + 6.
    assert lane["makespan"] == 45
    assert lane["formula"]["holds"] is False
    assert "it is for equal stages" in lane["remark"]
    assert picture["work_words"] == "27 = mean work of a rank"

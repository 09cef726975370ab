from playbook.program.schedule import schedule
from playbook.program.simulate import simulate
from playbook.program.simulated_timeline import timeline_of
from playbook.schedules import Action


def test_waits_and_idle_ends_are_rows_where_asked_for():
    """p = 2, m = 1, F = 1, B = 2, one way 1: rank 1 waits 2 for 0F0, rank 0 waits 5 for 1B0."""
    timed = schedule("1f1b", 2, 1).simulate(comm=1)
    found = timeline_of(timed, waits=True)
    rows = found[found["kind"].isin(["wait", "idle"])].set_index("op")
    assert len(found) == 4 + 3
    wait = rows.loc["m0/B/stage0/wait#0"]
    assert (wait["start_s"], wait["duration_s"], wait["rank"]) == (1, 5, 0)
    assert wait["label"] == "waits for 1B0 of rank 1; 1 of it the message's way"
    idle = rows.loc["idle#0"]
    assert (idle["rank"], idle["start_s"], idle["duration_s"], idle["microbatch"]) == (1, 5, 3, -1)


def test_the_rows_of_a_rank_fill_the_step():
    timed = schedule("interleaved-1f1b", 3, 6, 2).simulate(comm=0.5, receive="deferred")
    found = timeline_of(timed, waits=True)
    for _, rows in found.groupby("rank"):
        assert abs(rows["duration_s"].sum() - timed.makespan) < 1e-9


def test_the_plain_table_has_the_actions_only():
    timed = simulate([[Action(0, "F", 0)], [Action(1, "F", 0)]], [0, 1])
    assert timed.table["op"].tolist() == ["m0/F/stage0", "m0/F/stage1"]
    assert timed.table["label"].tolist() == ["0F0", "1F0"]

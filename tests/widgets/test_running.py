import os
import signal
import time

import pytest

from playbook.runtime.errors import Failure, JobCancelled, RankFailed
from widgets import CollectiveExplorer, PipelineExplorer, pool
from widgets.outcome import outcome

pytestmark = pytest.mark.timeout(120)
FAILURE = Failure(job="x", rank=3, ranks=4, cause="killed by SIGKILL", phase="timeline", victims=(0, 1))


def test_a_failed_rank_is_named_with_cause_phase_and_who_waited():
    state = outcome(RankFailed(FAILURE), "", [{"words": "Run on 2 ranks", "set": {"ranks": 2}}] * 3)
    assert state["state"] == "failed"
    assert state["failure"]["what"] == "Rank 3 of 4: killed by SIGKILL during timeline"
    assert state["failure"]["why"] == "Ranks 0 and 1 only waited for it."
    assert len(state["failure"]["remedies"]) == 2


def test_a_cancelled_run_says_that_what_was_measured_is_kept():
    assert outcome(JobCancelled("cancelled"), "", [])["word"] == "cancelled"


def test_a_fault_of_ours_is_told_whatever_the_job_did():
    assert (
        outcome(JobCancelled("cancelled"), "internal error: x", [])["failure"]["why"] == "internal error: x"
    )


def test_waiting_for_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing was run yet"):
        PipelineExplorer().wait()


def test_nothing_runs_while_a_value_is_refused():
    explorer = CollectiveExplorer()
    explorer.ranks = 0
    with pytest.raises(ValueError, match="ranks=0"):
        explorer.run()


@pytest.mark.dist
def test_a_killed_rank_is_shown_and_the_next_run_works():
    explorer = PipelineExplorer(stages=2, microbatches=64, schedules=["1f1b"])  # seconds from first to last
    job = explorer.run()
    while not explorer.measured:
        assert job.state in ("queued", "running")
        time.sleep(0.02)
    os.kill(int(pool.shared_pool(2).status().pid[1]), signal.SIGKILL)
    with pytest.raises(RankFailed, match="rank 1 of 2"):
        explorer.wait(60)
    assert job.state == explorer.status["state"] == "failed"
    assert explorer.status["failure"]["what"].startswith("Rank 1 of 2: killed by SIGKILL")
    assert explorer.measured, "what was measured is kept"
    explorer.microbatches = 2
    assert explorer.status == {"state": "idle"}
    explorer.run(wait=True)
    assert explorer.status["state"] == "done"


@pytest.mark.dist
def test_a_fault_while_events_are_drawn_ends_the_run_in_words(monkeypatch):
    explorer = PipelineExplorer(stages=2, microbatches=64, schedules=["1f1b"])  # not over before it is ended
    monkeypatch.setattr(explorer, "take", lambda events: 1 / 0)
    explorer.run()
    with pytest.raises(JobCancelled):
        explorer.wait(60)
    assert "ZeroDivisionError" in explorer.status["failure"]["why"]
    assert "test_running.py" in explorer.last_error


@pytest.mark.dist
def test_two_explorers_of_one_size_share_a_pool_and_another_size_does_not_stop_a_run():
    first = PipelineExplorer(stages=2, microbatches=16, schedules=["1f1b"])
    second = CollectiveExplorer(ranks=2, size_bytes=1024)
    third = CollectiveExplorer(ranks=3, size_bytes=1024)
    first.run()
    second.run()
    third.run(wait=True)
    first.wait(60)
    second.wait(60)
    assert [one.status["state"] for one in (first, second, third)] == ["done"] * 3


@pytest.mark.dist
def test_updates_come_at_most_ten_times_a_second():
    explorer = PipelineExplorer(stages=2, microbatches=24, schedules=["1f1b"])
    begun = set()
    explorer.observe(lambda change: begun.add(explorer._drawn_s), names=["version"])
    explorer.run(wait=True)
    moments = sorted(begun)
    gaps = [b - a for a, b in zip(moments, moments[1:], strict=False)]
    assert len(begun) > 5
    # "queued" and "running" are drawn at once; live pictures are held back, however long one takes to draw.
    assert sum(gap < 0.099 for gap in gaps) <= 2

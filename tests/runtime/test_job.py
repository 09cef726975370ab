"""Events of a job: streamed while it runs, bounded, and never lost at the end."""

import logging
import threading

import pytest

from playbook.runtime.job import Job

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]
WAIT_S = 60


def count_to(steps):
    from playbook.runtime.rank import emit

    for step in range(steps):
        emit("progress", "count", done=step + 1, total=steps)
        emit("step", "count", step=step)


def test_events_arrive_while_the_job_runs(pool):
    def mark_then_wait(path):
        import pathlib
        import time

        from playbook.runtime.rank import emit

        emit("mark", "half way", bytes=7)
        while not pathlib.Path(path).exists():
            time.sleep(0.01)

    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        job = pool.submit(mark_then_wait, folder + "/go")
        seen = threading.Event()
        job.on_event(lambda event: event["kind"] == "mark" and seen.set())
        assert seen.wait(WAIT_S)
        assert job.state == "running"
        Path(folder, "go").touch()
        job.result(WAIT_S)
    mark = next(event for event in job.events if event["kind"] == "mark")
    assert mark["name"] == "half way"
    assert mark["bytes"] == 7
    assert mark["rank"] in (0, 1)
    assert mark["time_s"] > 0


def test_events_keep_the_order_of_each_rank_and_end_with_the_end(pool):
    job = pool.submit(count_to, 100)
    job.result(WAIT_S)
    for rank in (0, 1):
        steps = [e["step"] for e in job.events if e["kind"] == "step" and e["rank"] == rank]
        assert steps == list(range(100))
    assert [e["name"] for e in job.events if e["kind"] == "job"] == ["running", "done"]
    assert job.events[-1]["name"] == "done"


def test_of_stale_progress_only_the_newest_is_kept(pool):
    job = pool.submit(count_to, 300)
    job.result(WAIT_S)
    progress = [event for event in job.events if event["kind"] == "progress"]
    assert [(event["done"], event["total"]) for event in progress] == [(300, 300)] * 2


def test_a_late_callback_hears_everything_from_the_beginning(pool):
    job = pool.submit(count_to, 3)
    job.result(WAIT_S)
    heard, last = [], threading.Event()

    @job.on_event
    def hear(event):
        heard.append(event)
        if event["name"] == "done":
            last.set()

    assert last.wait(WAIT_S)
    assert heard == job.events


def test_callbacks_are_called_from_the_pools_thread(pool):
    names, last = set(), threading.Event()
    job = pool.submit(count_to, 3)
    job.on_event(lambda event: names.add(threading.current_thread().name))
    job.on_event(lambda event: event["name"] == "done" and last.set())
    assert last.wait(WAIT_S)
    assert names == {"playbook-pump"}


def test_a_callback_that_fails_is_logged_and_stops_nothing(pool, caplog):
    def wrong(event):
        raise ValueError("a widget's mistake")

    with caplog.at_level(logging.ERROR, "playbook.runtime.job"):
        job = pool.submit(count_to, 1)
        job.on_event(wrong)
        job.result(WAIT_S)
        pool.submit(count_to, 1).result(WAIT_S)
    assert "a callback of count_to failed" in caplog.text


def test_a_flood_of_events_is_bounded_in_memory_and_whole_on_disk(pool):
    def flood(events):
        from playbook.runtime.rank import emit

        for number in range(events):
            emit("step", "flood", step=number)

    job = pool.submit(flood, 15_000)
    run = job.result(WAIT_S)
    assert len(job.events) == 20_000
    assert job.events[-1]["name"] == "done"
    assert sum(event["kind"] == "step" for event in run.events) == 30_000


def test_a_job_tells_its_name_ranks_and_state():
    class Nobody:
        def cancel(self, job: Job) -> bool:
            return False

        def follow(self, job: Job, callback) -> None:
            pass

    assert repr(Job(name="tp", ranks=4, owner=Nobody())) == "<Job 'tp' on 4 ranks: queued>"

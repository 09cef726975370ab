"""Cancelling, interrupting and awaiting jobs; the jobs behind them go on."""

import _thread
import asyncio
import threading

import psutil
import pytest

from playbook.runtime.errors import JobCancelled
from playbook.runtime.pool import Pool
from playbook.runtime.run import load_run
from tests.runtime.processes import left_running, wait_until

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]
WAIT_S = 60


def hang():
    """Hang in a collective that one rank never joins."""
    import time

    import torch
    import torch.distributed as dist

    from playbook.runtime.rank import emit

    emit("mark", "hanging")
    if dist.get_rank() == 0:
        time.sleep(1000)
    dist.all_reduce(torch.ones(1))


def rank():
    import torch.distributed as dist

    return dist.get_rank()


def hung(pool):
    """A job that hangs by now."""
    job = pool.submit(hang)
    wait_until(lambda: any(event["kind"] == "mark" for event in job.events))
    return job


def test_a_hung_collective_is_cancelled_and_the_pool_goes_on(pool):
    job = hung(pool)
    ranks = list(map(psutil.Process, pool.status()["pid"]))
    assert job.cancel()
    with pytest.raises(JobCancelled, match="hang was cancelled"):
        job.result(WAIT_S)
    assert job.state == "cancelled"
    assert not job.cancel()
    assert left_running(ranks, patience_s=0) == []
    assert load_run(job.directory).state == "cancelled"
    assert pool.submit(rank).result(WAIT_S).values == (0, 1)


def test_queued_jobs_survive_the_restart(pool):
    job = hung(pool)
    behind = [pool.submit(rank) for _ in range(3)]
    job.cancel()
    assert [each.result(WAIT_S).values for each in behind] == [(0, 1)] * 3


def test_a_queued_job_is_cancelled_without_touching_the_running_one(pool):
    job = hung(pool)
    queued = pool.submit(rank)
    pids = set(pool.status()["pid"])
    assert queued.cancel()
    with pytest.raises(JobCancelled, match="while it waited"):
        queued.result(WAIT_S)
    assert queued.events[-1]["name"] == "cancelled"
    assert job.state == "running"
    assert set(pool.status()["pid"]) == pids
    job.cancel()


def test_a_finished_job_cannot_be_cancelled(pool):
    job = pool.submit(rank)
    job.result(WAIT_S)
    assert not job.cancel()
    assert job.result(0).values == (0, 1)


def test_a_wait_that_times_out_leaves_the_job_alone(pool):
    job = hung(pool)
    with pytest.raises(TimeoutError, match=r"hang is running after 0.2 s"):
        job.result(0.2)
    assert job.state == "running"
    job.cancel()


def test_interrupting_the_wait_cancels_the_job(pool, monkeypatch):
    job = hung(pool)
    waits, wait = threading.Event(), job._ended.wait
    monkeypatch.setattr(job._ended, "wait", lambda left: (waits.set(), wait(left))[1])

    def interrupt():  # only a wait: anywhere else it would end all the tests
        if waits.wait(WAIT_S):
            _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        job.result(WAIT_S)
    with pytest.raises(JobCancelled):
        job.result(WAIT_S)
    assert pool.submit(rank).result(WAIT_S).values == (0, 1)


def test_a_job_can_be_awaited_while_the_loop_does_other_things(pool, tmp_path):
    def rest(path):
        import pathlib
        import time

        while not pathlib.Path(path).exists():
            time.sleep(0.01)
        return "rested"

    async def tick(path):
        for _ in range(5):
            await asyncio.sleep(0.02)
        path.touch()

    async def both(path):
        ticking = asyncio.ensure_future(tick(path))
        run = await asyncio.wait_for(pool.submit(rest, str(path)), WAIT_S)
        await ticking
        return run.values

    assert asyncio.run(both(tmp_path / "ticked")) == ("rested", "rested")


def test_cancelling_the_wait_cancels_the_job(pool):
    async def give_up(job):
        await asyncio.wait_for(job, 0.2)

    job = hung(pool)
    with pytest.raises(TimeoutError):
        asyncio.run(give_up(job))
    with pytest.raises(JobCancelled):
        job.result(WAIT_S)


def test_awaiting_a_finished_job_returns_at_once(pool):
    job = pool.submit(rank)
    job.result(WAIT_S)

    async def wait():
        return await job

    assert asyncio.run(wait()).values == (0, 1)


def test_closing_a_pool_cancels_what_runs_and_what_waits():
    pool = Pool(ranks=2, backend="gloo")
    job, queued = hung(pool), pool.submit(rank)
    ranks = list(map(psutil.Process, pool.status()["pid"]))
    pool.close()
    for each in (job, queued):
        with pytest.raises(JobCancelled, match="its pool was closed"):
            each.result(WAIT_S)
    assert left_running(ranks, patience_s=0) == []


def test_a_callback_may_cancel_its_job_and_close_its_pool():
    pool = Pool(ranks=2, backend="gloo")
    job = pool.submit(hang)

    def stop(event):
        if event["kind"] == "mark":
            job.cancel()
            pool.close()

    job.on_event(stop)
    with pytest.raises(JobCancelled):
        job.result(WAIT_S)
    assert pool._desk.ended.wait(WAIT_S)

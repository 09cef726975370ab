"""A rank that fails is named with cause and phase, its victims are not blamed, and the pool goes on."""

import os
import signal
import time

import psutil
import pytest

from playbook.runtime import crew
from playbook.runtime.errors import RankFailed
from playbook.runtime.run import load_run
from tests.runtime.processes import left_running, wait_until

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]
WAIT_S = 60


def all_reduce():
    import torch
    import torch.distributed as dist

    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return float(tensor)


def fail_on(rank, how):
    """Fail on one rank, while the others wait in a collective."""
    import os
    import sys

    import torch.distributed as dist

    from playbook.runtime.rank import current_phase

    current_phase("the test's own phase")
    if dist.get_rank() == rank:
        print("last words")
        if isinstance(how, str):
            raise ValueError(how)
        if how < 0:
            os.kill(os.getpid(), -how)
            time.sleep(30)
        if how == 0:
            sys.exit("enough")
        os._exit(how)
    all_reduce()


@pytest.fixture
def failed(four):
    """The error of a job whose rank `rank` fails, after which the pool has proved that it works."""

    def run(rank, how) -> RankFailed:
        job = four.submit(fail_on, rank, how)
        with pytest.raises(RankFailed) as caught:
            job.result(WAIT_S)
        assert job.state == "failed"
        assert load_run(job.directory).state == "failed"
        assert four.submit(all_reduce).result(WAIT_S).values == (4.0,) * 4
        return caught.value

    return run


def test_an_exception_is_named_with_rank_phase_and_traceback(failed):
    error = failed(1, "odd rows")
    assert (error.rank, error.ranks, error.cause) == (1, 4, "ValueError: odd rows")
    assert error.phase == "the test's own phase"
    assert error.victims == (0, 2, 3)
    assert "raise ValueError(how)" in error.traceback
    assert "worker.py" not in error.traceback
    first, second = str(error).splitlines()[:2]
    assert first == 'rank 1 of 4 failed in fail_on, phase "the test\'s own phase": ValueError: odd rows'
    assert second == "Ranks 0, 2 and 3 only waited for it."


def test_a_segmentation_fault_is_named_with_its_stack(failed):
    error = failed(3, -signal.SIGSEGV)
    assert (error.rank, error.cause) == (3, "killed by SIGSEGV")
    assert error.phase == "the test's own phase"
    assert error.victims == (0, 1, 2)
    assert "in fail_on" in error.traceback
    assert "last words" in error.log_tail


def test_a_kill_is_named_and_memory_is_suspected(failed):
    error = failed(0, -signal.SIGKILL)
    assert (error.rank, error.cause) == (0, "killed by SIGKILL")
    assert "memory" in error.hint
    assert error.victims == (1, 2, 3)
    assert "last words" in str(error)


def test_an_abort_is_named(failed):
    assert failed(2, -signal.SIGABRT).cause == "killed by SIGABRT"


def test_a_rank_that_exits_is_named_with_its_code(failed):
    error = failed(2, 7)
    assert (error.rank, error.cause) == (2, "the process ended with exit code 7 before its job was done")


def test_sys_exit_counts_as_a_failure(failed):
    assert failed(0, 0).cause == "SystemExit: enough"


def test_all_ranks_may_fail_of_themselves(four, monkeypatch):
    monkeypatch.setattr(crew, "GRACE_S", WAIT_S)  # until all have been heard

    def everywhere():
        raise KeyError("the same")

    with pytest.raises(RankFailed, match="failed as well") as caught:
        four.submit(everywhere).result(WAIT_S)
    assert caught.value.victims == ()
    assert len(caught.value.others) == 3


def test_a_rank_that_had_returned_is_no_victim(four, tmp_path):
    def late(path):
        import pathlib
        import time

        import torch.distributed as dist

        if dist.get_rank() == 2:
            while not pathlib.Path(path).exists():
                time.sleep(0.01)
            raise OSError("late")

    job = four.submit(late, str(tmp_path / "others have returned"))
    wait_until(lambda: sorted(four.status()["state"]) == ["busy", "done", "done", "done"])
    (tmp_path / "others have returned").touch()
    with pytest.raises(RankFailed) as caught:
        job.result(WAIT_S)
    assert (caught.value.rank, caught.value.victims) == (2, ())


def test_a_rank_whose_end_is_noticed_after_that_of_its_victims_is_still_named(four):
    def vanish():
        import os
        import time

        import torch.distributed as dist

        if dist.get_rank() == 0:
            raise ConnectionError("connection closed by peer")
        time.sleep(1.5 if dist.get_rank() == 1 else 60)
        os._exit(3)

    with pytest.raises(RankFailed, match="exit code 3") as caught:
        four.submit(vanish).result(WAIT_S)
    assert (caught.value.rank, caught.value.victims) == (1, (0, 2, 3))


def test_jobs_behind_a_failed_one_still_run(four):
    bad = four.submit(fail_on, 1, "first")
    good = [four.submit(all_reduce) for _ in range(3)]
    assert [job.result(WAIT_S).values[0] for job in good] == [4.0, 4.0, 4.0]
    with pytest.raises(RankFailed):
        bad.result(WAIT_S)


def test_a_function_that_cannot_be_unpacked_fails_in_words(four):
    class Trap:
        def __reduce__(self):
            return (exec, ("raise ImportError('no such part here')",))

    with pytest.raises(RankFailed, match="ImportError: no such part here") as caught:
        four.submit(lambda trap: None, Trap()).result(WAIT_S)
    assert caught.value.phase == "unpacking the function"


def test_an_idle_rank_that_dies_is_replaced(four):
    four.submit(all_reduce).result(WAIT_S)
    before = list(four.status()["pid"])
    first = psutil.Process(before[0])
    os.kill(before[1], signal.SIGKILL)
    assert left_running([first]) == []
    assert four.submit(all_reduce).result(WAIT_S).values == (4.0,) * 4
    assert set(before).isdisjoint(four.status()["pid"])


def test_what_was_reported_before_a_crash_is_kept(four):
    def report_then_die():
        import os
        import signal

        import torch.distributed as dist

        from playbook.runtime.rank import emit, report_table

        emit("mark", "before", step=1)
        report_table("memory", [{"op": "x", "bytes": 8, "term": "temporary"}])
        dist.barrier()
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    job = four.submit(report_then_die)
    with pytest.raises(RankFailed):
        job.result(WAIT_S)
    run = load_run(job.directory)
    assert sorted(event["rank"] for event in run.events if event["kind"] == "mark") == [0, 1, 2, 3]
    assert sorted(run.memory["rank"]) == [0, 1, 2, 3]


def test_a_start_that_fails_is_told_to_the_job_that_waits(monkeypatch):
    from playbook.runtime import environment
    from playbook.runtime.pool import Pool

    monkeypatch.setattr(environment, "loopback_sockets", lambda: {"GLOO_SOCKET_IFNAME": "no-such-if"})
    with Pool(ranks=2, backend="gloo") as pool:
        with pytest.raises(RankFailed, match="failed in the start of the pool, phase 'starting'"):
            pool.submit(all_reduce).result(WAIT_S)
        monkeypatch.undo()
        assert pool.submit(all_reduce).result(WAIT_S).values == (2.0, 2.0)

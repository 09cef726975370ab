"""Functions on a warm pool: what travels, what comes back, what is refused."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from playbook.runtime import limits
from playbook.runtime.errors import PoolClosed
from playbook.runtime.pool import Pool

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]
WAIT_S = 60


def rank_and_sum(value):
    import torch
    import torch.distributed as dist

    tensor = torch.full((3,), float(value))
    dist.all_reduce(tensor)
    return dist.get_rank(), dist.get_world_size(), tensor


def test_a_function_runs_on_every_rank_with_the_process_group_up(pool):
    run = pool.submit(rank_and_sum, 2).result(WAIT_S)
    assert [value[:2] for value in run.values] == [(0, 2), (1, 2)]
    np.testing.assert_array_equal(run.values[1][2], np.array([4, 4, 4], dtype=np.float32))
    assert run.state == "done"
    assert run.backend == "gloo"
    assert run.seconds > 0


def test_any_signature_is_called_with_what_was_given(pool):
    def mixed(first, /, second, *rest, third=3, **more):
        return first, second, rest, third, more

    run = pool.submit(mixed, 1, 2, 5, 6, third=7, other="x").result(WAIT_S)
    assert run.values == ((1, 2, (5, 6), 7, {"other": "x"}),) * 2


def test_closures_and_lambdas_travel(pool):
    offset = 40
    assert pool.submit(lambda x: x + offset, 2).result(WAIT_S).values == (42, 42)


def test_tensors_come_back_as_arrays_wherever_they_sit(pool):
    def nested():
        import torch

        return {"plain": [torch.arange(2)], "half": torch.ones(2, dtype=torch.bfloat16), "n": 3}

    value = pool.submit(nested).result(WAIT_S).values[0]
    np.testing.assert_array_equal(value["plain"][0], [0, 1])
    assert value["half"].dtype == np.float32
    assert value["n"] == 3


def test_the_kernel_needs_no_torch():
    code = (
        "import sys\n"
        "from playbook.runtime.pool import Pool\n"
        "with Pool(ranks=1, backend='gloo') as pool:\n"
        "    print(pool.submit(lambda: 'from a rank').result(60).values, 'torch' in sys.modules)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert out.stdout.strip() == "('from a rank',) False", out.stderr


def test_a_script_without_a_main_guard_is_not_run_again_by_its_ranks(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "from playbook.runtime.pool import Pool\n"
        "print('main runs')\n"
        "def here():\n"
        "    return 7\n"
        "for method in ('forkserver', 'spawn'):\n"
        "    pool = Pool(ranks=2, backend='gloo', start_method=method)\n"
        "    print(pool.submit(here).result(90).values)\n"
    )
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=110)
    assert out.stdout.splitlines() == ["main runs", "(7, 7)", "(7, 7)"], out.stderr
    assert out.returncode == 0


def test_a_module_beside_the_script_travels_as_it_is_now(pool, tmp_path: Path, monkeypatch):
    import importlib

    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "bench_beside.py"
    module.write_text("def answer():\n    return 1\n")
    beside = importlib.import_module("bench_beside")
    assert pool.submit(beside.answer).result(WAIT_S).values == (1, 1)
    module.write_text("def answer():\n    return 22  # edited\n")
    importlib.invalidate_caches()
    assert pool.submit(importlib.reload(beside).answer).result(WAIT_S).values == (22, 22)


def test_ranks_import_what_was_saved_after_they_started(pool, tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "bench_saved_later.py").write_text("VALUE = 5\n")

    def late():
        import bench_saved_later  # pyright: ignore[reportMissingImports]

        return bench_saved_later.VALUE

    assert pool.submit(late).result(WAIT_S).values == (5, 5)


def test_printed_and_native_output_is_kept_per_rank(pool):
    def speak():
        import os

        import torch.distributed as dist

        print("python", dist.get_rank())
        os.system(f"echo native {dist.get_rank()}")

    job = pool.submit(speak)
    job.result(WAIT_S)
    assert job.log(1).splitlines() == ["python 1", "native 1"]
    with pytest.raises(ValueError, match="rank 2 of a job on 2 ranks: give 0 to 1"):
        job.log(2)


def test_jobs_run_in_the_order_of_their_submission(pool):
    order: list[str] = []
    jobs = [pool.submit(lambda n=n: n) for n in range(5)]
    for job in jobs:
        job.on_event(lambda event, job=job: event["name"] == "done" and order.append(job))
    assert [job.result(WAIT_S).values[0] for job in jobs] == [0, 1, 2, 3, 4]


def test_submitting_returns_before_the_job_has_run(pool, tmp_path: Path):
    def wait(path):
        import pathlib
        import time

        while not pathlib.Path(path).exists():
            time.sleep(0.01)

    job = pool.submit(wait, str(tmp_path / "submitted"))
    assert job.state in ("queued", "running")
    (tmp_path / "submitted").touch()
    job.result(WAIT_S)
    assert job.state == "done"


def test_two_pools_work_at_once(pool):
    with Pool(ranks=3, backend="gloo") as other:
        first, second = pool.submit(rank_and_sum, 1), other.submit(rank_and_sum, 1)
        assert second.result(WAIT_S).values[0][2][0] == 3
        assert first.result(WAIT_S).values[0][2][0] == 2


def test_groups_that_a_job_has_made_do_not_disturb_the_next(pool):
    def halves():
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
        return mesh["dp"].size(), dist.is_initialized()

    def destroy():
        import torch.distributed as dist

        dist.destroy_process_group()

    for _ in range(3):
        assert pool.submit(halves).result(WAIT_S).values == ((2, True),) * 2
    pool.submit(destroy).result(WAIT_S)
    assert pool.submit(rank_and_sum, 1).result(WAIT_S).values[0][2][0] == 2


def test_a_job_may_leave_its_group_at_once_while_others_still_join(pool):
    def destroy():
        import torch.distributed as dist

        dist.destroy_process_group()

    for _ in range(20):
        assert pool.submit(destroy).result(WAIT_S).values == (None, None)


def test_status_has_one_row_a_rank(pool):
    pool.submit(rank_and_sum, 1).result(WAIT_S)
    status = pool.status()
    assert list(status.columns) == ["rank", "pid", "device", "state", "rss_bytes", "last_event"]
    assert list(status["rank"]) == [0, 1]
    assert list(status["device"]) == ["cpu", "cpu"]
    assert (status["rss_bytes"] > 10_000_000).all()
    assert status["pid"].nunique() == 2


def test_each_rank_gets_its_share_of_the_cores(pool):
    def threads():
        import os

        import torch

        return torch.get_num_threads(), int(os.environ["OMP_NUM_THREADS"])

    share = max(1, limits.cores() // 2)
    assert pool.submit(threads).result(WAIT_S).values == ((share, share),) * 2


def test_ranks_may_outnumber_the_cores():
    with Pool(ranks=5, backend="gloo") as many:
        assert many.submit(rank_and_sum, 1).result(WAIT_S).values[4][2][0] == 5


def test_a_spawned_pool_is_kept_warm_as_well():
    def pid():
        import os

        return os.getpid()

    with Pool(ranks=2, backend="gloo", start_method="spawn") as spawned:
        first = spawned.submit(pid).result(100).values
        assert spawned.submit(pid).result(WAIT_S).values == first


def test_a_closed_pool_refuses_jobs_in_words(pool):
    closed = Pool(ranks=1, backend="gloo")
    closed.close()
    closed.close()
    with pytest.raises(PoolClosed, match=r"closed: make a new one with Pool\(1\)"):
        closed.submit(rank_and_sum, 1)
    assert issubclass(PoolClosed, ValueError)
    assert "closed" in repr(closed)


def test_what_cannot_travel_is_refused_and_the_pool_goes_on(pool):
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot travel to the ranks: .*lock"):
        pool.submit(lambda: lock)
    with pytest.raises(TypeError, match="4 cannot be run: submit a function"):
        pool.submit(4)
    with pytest.raises(TypeError, match=r"rank_and_sum\(value\) cannot be called .*get_rank"):
        pool.submit(rank_and_sum)
    assert pool.submit(rank_and_sum, 1).result(WAIT_S).values[0][1] == 2


def test_a_result_that_cannot_travel_is_named_by_rank(pool):
    from playbook.runtime.errors import RankFailed

    def generator():
        return (n for n in range(3))

    with pytest.raises(RankFailed, match=r"TypeError: the returned generator cannot travel back") as caught:
        pool.submit(generator).result(WAIT_S)
    assert caught.value.phase == "returning the value"


def test_a_pool_nobody_holds_is_closed():
    import gc

    pool = Pool(ranks=1, backend="gloo")
    pool.submit(rank_and_sum, 1).result(WAIT_S)
    desk = pool._desk
    del pool
    gc.collect()
    assert desk.ended.wait(30)


def test_a_job_keeps_its_pool_alive():
    job = Pool(ranks=1, backend="gloo").submit(rank_and_sum, 1)
    assert job.result(WAIT_S).values[0][1] == 1

"""A hundred jobs leave no descriptor, thread or memory behind, and no port is open beyond loopback."""

import gc
import ipaddress
import os
import threading
from contextlib import suppress

import psutil
import pytest

from playbook.runtime.pool import Pool
from tests.runtime.processes import wait_until

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]
WAIT_S = 60


def work():
    import torch
    import torch.distributed as dist

    from playbook.runtime.rank import emit, report_table

    emit("step", "work")
    report_table("memory", [{"op": "x", "bytes": 1}])
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    return tensor


def make_groups():
    import torch.distributed as dist

    group = dist.new_group([0, 1])
    dist.barrier(group)


def usage(pool) -> list[tuple[int, int]]:
    """Descriptors and resident bytes of the kernel and of each rank."""
    gc.collect()
    processes = [psutil.Process(), *map(psutil.Process, pool.status()["pid"])]
    return [(process.num_fds(), process.memory_info().rss) for process in processes]


def assert_usage_returns_to(before: list[tuple[int, int]], pool, more_fds: int = 0) -> None:
    """A rank puts its log away after it has answered, so there may be a descriptor more for a moment."""
    most = [(fds + more_fds, rss + 20 * 2**20) for fds, rss in before]

    def too_much() -> list[str]:
        now = zip(usage(pool), most, strict=True)
        return [f"{got} > {limit}" for got, limit in now if got[0] > limit[0] or got[1] >= limit[1]]

    with suppress(AssertionError):
        wait_until(lambda: not too_much(), patience_s=20)
    assert too_much() == []


def test_a_hundred_jobs_leave_nothing_behind(pool):
    for _ in range(10):
        pool.submit(work).result(WAIT_S)
    before, threads = usage(pool), threading.active_count()
    for _ in range(100):
        pool.submit(work).result(WAIT_S)
    assert_usage_returns_to(before, pool)
    assert threading.active_count() <= threads


def test_jobs_that_make_groups_leave_no_socket_behind(pool):
    for _ in range(5):
        pool.submit(make_groups).result(WAIT_S)
    before = usage(pool)
    for _ in range(20):
        pool.submit(make_groups).result(WAIT_S)
    assert_usage_returns_to(before, pool, more_fds=2)


def test_pools_and_restarts_leave_no_descriptor_behind():
    def cycle():
        with Pool(ranks=2, backend="gloo") as pool:
            pool.submit(work).result(WAIT_S)
            pool.submit(lambda: __import__("time").sleep(100)).cancel()
            pool.submit(work).result(WAIT_S)

    cycle()
    gc.collect()
    before = psutil.Process().num_fds()
    for _ in range(5):
        cycle()
    gc.collect()
    assert psutil.Process().num_fds() <= before


def test_nothing_listens_beyond_loopback(pool):
    pool.submit(work).result(WAIT_S)
    listening = []
    for process in (psutil.Process(os.getpid()), *map(psutil.Process, pool.status()["pid"])):
        for socket in process.net_connections(kind="inet"):
            if socket.status == psutil.CONN_LISTEN:
                listening.append((process.pid, ipaddress.ip_address(socket.laddr.ip)))
    assert all(address.is_loopback for _, address in listening)
    assert os.getpid() not in [pid for pid, _ in listening]

"""No rank outlives the kernel, whatever ends it and whatever the rank is doing."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from playbook.runtime import scratch
from playbook.runtime.run import load_run
from tests.runtime.processes import left_running, runs

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

HANG = """
def work():
    import torch, time
    import torch.distributed as dist
    if dist.get_rank() == 0:
        time.sleep(1000)
    dist.all_reduce(torch.ones(1))
"""
HOLD_THE_LOCK = """
def work():
    import re
    re.match(r"(a+)+b", "a" * 64)   # never lets another thread of the process run
"""
KERNEL = """
import os, sys, time
from playbook.runtime.pool import Pool
{work}
pool = Pool(ranks=2, backend="gloo", start_method={method!r})
pool.submit(lambda: None).result(100)
job = pool.submit(work)
def wrote(rank):  # a rank that holds its interpreter lock can send nothing, but its file is written at once
    path = job.directory and job.directory / f"rank{{rank}}.jsonl"
    return path and path.exists() and {sign!r} in path.read_text()
while not all(map(wrote, (0, 1))):
    time.sleep(0.01)
time.sleep(0.3)  # the ranks now enter what the test is about; sooner is no other outcome
print(*pool.status()["pid"], flush=True)
sys.stdin.readline()  # go on when the test holds every process
{end}
"""


@contextmanager
def kernel_with_ranks(
    work: str, method: str, end: str, sign: str = "running the function"
) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A kernel whose ranks have written `sign`, and every process that it has started."""
    code = KERNEL.format(work=work, method=method, end=end, sign=sign)
    processes: list[psutil.Process] = []
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as kernel:
        assert kernel.stdin is not None
        assert kernel.stdout is not None
        try:
            ranks = [psutil.Process(int(pid)) for pid in kernel.stdout.readline().split()]
            assert len(ranks) == 2
            processes += {*ranks, *psutil.Process(kernel.pid).children(recursive=True)}
            kernel.stdin.write("go\n")
            kernel.stdin.flush()
            yield kernel, processes
        finally:
            kernel.kill()
            for process in filter(runs, processes):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("work", [HANG, HOLD_THE_LOCK], ids=["hung collective", "interpreter lock held"])
def test_no_rank_outlives_a_killed_kernel(work: str, method: str):
    with kernel_with_ranks(work, method, "time.sleep(1000)") as (kernel, processes):
        kernel.kill()
        assert left_running(processes) == []


ENDS = ["sys.exit(0)", "raise ValueError('end')", "os.kill(os.getpid(), 15)"]


@pytest.mark.parametrize("end", ENDS)
def test_no_rank_outlives_a_kernel_that_ends(end: str):
    with kernel_with_ranks(HANG, "forkserver", end) as (kernel, processes):
        kernel.wait(60)
        assert left_running(processes) == []


def test_an_interrupt_of_the_process_group_spares_the_ranks():
    """Ctrl-C in a terminal and Jupyter's interrupt reach the whole group, a starting fork server too."""
    code = (
        "import time\n"
        "from playbook.runtime.pool import Pool\n"
        "pool = Pool(ranks=2, backend='gloo')\n"
        "try:\n"
        "    print('started', flush=True)\n"
        "    time.sleep(100)\n"
        "except KeyboardInterrupt:\n"
        "    print(pool.submit(lambda: 'alive').result(100).values, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as kernel:
        try:
            assert kernel.stdout is not None
            kernel.stdout.readline()
            time.sleep(0.2)
            os.killpg(kernel.pid, signal.SIGINT)
            out, err = kernel.communicate(timeout=100)
        finally:
            kernel.kill()
    assert out.strip() == "('alive', 'alive')", err
    assert err == ""


def test_a_forked_child_of_the_kernel_leaves_the_ranks_alone():
    code = (
        "import os\n"
        "from playbook.runtime.pool import Pool\n"
        "pool = Pool(ranks=2, backend='gloo')\n"
        "pool.submit(lambda: None).result(100)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    raise SystemExit\n"  # runs the exit handlers of the child
        "os.waitpid(child, 0)\n"
        "print(pool.submit(lambda: 'alive').result(100).values)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=110)
    assert out.stdout.strip() == "('alive', 'alive')", out.stderr


REPORT = """
    from playbook.runtime.rank import emit, report_table
    emit("mark", "measured", bytes=8)
    report_table("timeline", [{"label": "step", "kind": "forward", "start_s": 0.0, "duration_s": 1.0}])
"""


def test_a_killed_kernel_leaves_its_measurements_and_no_other_file(runs: Path):
    work = HANG.replace("    import torch, time\n", "    import torch, time\n" + REPORT)
    with kernel_with_ranks(work, "forkserver", "time.sleep(1000)", '"kind":"rows"') as (kernel, processes):
        (folder,) = Path(tempfile.gettempdir()).glob(f"playbook-pool-{kernel.pid}-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        kernel.kill()
        assert left_running(processes) == []
    scratch.sweep()  # as the next pool does
    assert not folder.exists()
    newest = max((path for path in runs.iterdir() if "-work-" in path.name), key=lambda p: p.stat().st_mtime)
    run = load_run(newest)
    assert run.state == "unfinished"
    assert len([event for event in run.events if event["kind"] == "mark"]) == 2
    assert list(run.timeline["label"]) == ["step", "step"]

"""No rank outlives the kernel, whatever ends it and whatever the rank is doing."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from playbook.runtime import scratch
from playbook.runtime.run import load_run

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
while job.state != "running":
    time.sleep(0.01)
time.sleep(0.3)
print(*pool.status()["pid"], flush=True)
sys.stdin.readline()  # go on when the test holds every process
{end}
"""


def start_kernel(work: str, method: str, end: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    code = KERNEL.format(work=work, method=method, end=end)
    kernel = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert kernel.stdin is not None and kernel.stdout is not None
    with kernel.stdin as go, kernel.stdout as out:
        ranks = [psutil.Process(int(pid)) for pid in out.readline().split()]
        assert len(ranks) == 2
        servers = psutil.Process(kernel.pid).children(recursive=True)
        go.write("go\n")
    return kernel, list({*ranks, *servers})


def assert_all_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=15)
    left = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    for process in left:
        process.kill()
    assert not left


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("work", [HANG, HOLD_THE_LOCK], ids=["hung collective", "interpreter lock held"])
def test_no_rank_outlives_a_killed_kernel(work: str, method: str):
    kernel, processes = start_kernel(work, method, "time.sleep(1000)")
    os.kill(kernel.pid, signal.SIGKILL)
    kernel.wait(30)
    assert_all_gone(processes)


ENDS = ["sys.exit(0)", "raise ValueError('end')", "os.kill(os.getpid(), 15)"]


@pytest.mark.parametrize("end", ENDS)
def test_no_rank_outlives_a_kernel_that_ends(end: str):
    kernel, processes = start_kernel(HANG, "forkserver", end)
    kernel.wait(30)
    assert_all_gone(processes)


def test_an_interrupt_of_the_process_group_spares_the_ranks():
    """Ctrl-C in a terminal and Jupyter's interrupt reach the whole group, a starting fork server too."""
    code = (
        "import time\n"
        "from playbook.runtime.pool import Pool\n"
        "pool = Pool(ranks=2, backend='gloo')\n"
        "print('started', flush=True)\n"
        "try:\n"
        "    time.sleep(100)\n"
        "except KeyboardInterrupt:\n"
        "    print(pool.submit(lambda: 'alive').result(100).values, flush=True)\n"
    )
    kernel = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert kernel.stdout is not None
    kernel.stdout.readline()
    time.sleep(0.2)
    os.killpg(kernel.pid, signal.SIGINT)
    out, err = kernel.communicate(timeout=100)
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
    kernel, processes = start_kernel(work, "forkserver", "time.sleep(1000)")
    (folder,) = Path(tempfile.gettempdir()).glob(f"playbook-pool-{kernel.pid}-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    os.kill(kernel.pid, signal.SIGKILL)
    kernel.wait(30)
    assert_all_gone(processes)
    scratch.sweep()  # as the next pool does
    assert not folder.exists()
    newest = max((path for path in runs.iterdir() if "-work-" in path.name), key=lambda p: p.stat().st_mtime)
    run = load_run(newest)
    assert run.state == "unfinished"
    assert len([event for event in run.events if event["kind"] == "mark"]) == 2
    assert list(run.timeline["label"]) == ["step", "step"]

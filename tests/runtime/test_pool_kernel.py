"""A pool inside a real Jupyter kernel: functions from cells, streaming, awaiting, interrupting, killing."""

import os
import queue
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.runtime.processes import left_running

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")

pytestmark = [pytest.mark.dist, pytest.mark.timeout(300)]


class Kernel:
    """A kernel and a client that runs cells in it, one after the other."""

    def __init__(self) -> None:
        self.manager, self.client = jupyter_client.manager.start_new_kernel(
            kernel_name="python3", startup_timeout=110
        )

    def send(self, code: str) -> str:
        return self.client.execute(code)

    def outcome(self, sent: str, timeout_s: float = 90) -> str:
        """Text that a cell printed, or the name and text of its error."""
        text, deadline = "", time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                text += content["text"]
            elif kind == "error":
                text += f"{content['ename']}: {content['evalue']}"
            elif kind == "status" and content["execution_state"] == "idle":
                return text
        raise AssertionError(f"the cell did not end: {text}")

    def heard(self, sent: str, word: str, timeout_s: float = 90) -> None:
        """Wait until a cell has printed a word; what it prints later is left for `outcome`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with suppress(queue.Empty):
                message = self.client.get_iopub_msg(timeout=1)
                ours = message["parent_header"].get("msg_id") == sent and message["msg_type"] == "stream"
                if ours and word in message["content"]["text"]:
                    return
        raise AssertionError(f"the cell did not print {word!r}")

    def run(self, code: str) -> str:
        return self.outcome(self.send(code))

    def ranks(self) -> list[psutil.Process]:
        return [psutil.Process(int(pid)) for pid in self.run("print(*pool.status()['pid'])").split()]


def start() -> Iterator[Kernel]:
    """A kernel with a pool, until the test is over."""
    running = Kernel()
    try:
        running.run(
            "import time\nfrom playbook.runtime.pool import Pool\npool = Pool(ranks=2, backend='gloo')"
        )
        yield running
    finally:
        running.client.stop_channels()
        running.manager.shutdown_kernel(now=True)
        running.manager.context.destroy(linger=0)


kernel = pytest.fixture(start, scope="module", name="kernel")
fresh = pytest.fixture(start, name="fresh")


HANG = """
def hang():
    import time, torch, torch.distributed as dist
    if dist.get_rank() == 0:
        time.sleep(1000)
    dist.all_reduce(torch.ones(1))
job = pool.submit(hang)
while job.state != "running" or not job.events[1:]:
    time.sleep(0.01)
"""


def test_cells_give_functions_to_ranks_and_hear_from_them_while_others_run(kernel: Kernel, tmp_path: Path):
    assert kernel.run("scale = 3\ndef triple(x):\n    return x * scale") == ""
    assert kernel.run("print(pool.submit(triple, 2).result(60).values)") == "(6, 6)\n"
    assert kernel.run("print((await pool.submit(triple, 3)).values)") == "(9, 9)\n"
    kernel.run(
        "def tick(path):\n"
        "    from pathlib import Path\n"
        "    from playbook.runtime.rank import emit\n"
        "    while not Path(path).exists():\n"
        "        emit('tick', 'tick')\n"
        "        time.sleep(0.05)\n"
        "heard = []\n"
        f"job = pool.submit(tick, {str(tmp_path / 'enough')!r})\n"
        "job.on_event(lambda event: event['kind'] == 'tick' and heard.append(time.monotonic()))"
    )
    busy = (
        "start, before = time.monotonic(), len(heard)\n"
        "while len(heard) < before + 10 and time.monotonic() - start < 60:\n"
        "    pass\n"
        "print(len(heard) >= before + 10, job.state)"
    )
    assert kernel.run(busy) == "True running\n"
    (tmp_path / "enough").touch()
    assert kernel.run("print(job.result(60).state)") == "done\n"


def test_a_traceback_shows_the_cell(kernel: Kernel):
    kernel.run("def wrong():\n    raise ValueError('odd')  # in a cell")
    shown = kernel.run("try:\n    pool.submit(wrong).result(60)\nexcept RuntimeError as e:\n    print(e)")
    assert "raise ValueError('odd')  # in a cell" in shown


@pytest.mark.parametrize("wait", ["job.result()", "await job"])
def test_interrupting_a_waiting_cell_cancels_the_job(kernel: Kernel, wait: str):
    kernel.run(HANG)
    sent = kernel.send(f"print('waiting', flush=True)\n{wait}")
    kernel.heard(sent, "waiting")
    time.sleep(1.0)  # from the word to the wait is one step
    kernel.manager.interrupt_kernel()
    assert kernel.outcome(sent).startswith(("KeyboardInterrupt", "CancelledError"))
    shown = kernel.run("try:\n    job.result(60)\nexcept RuntimeError as e:\n    print(e, job.state)")
    assert shown == "hang was cancelled cancelled\n"
    assert kernel.run("print(pool.submit(lambda: 1).result(60).values)") == "(1, 1)\n"


def test_no_rank_outlives_a_restarted_kernel(fresh: Kernel):
    fresh.run(HANG)
    ranks = fresh.ranks()
    fresh.manager.restart_kernel(now=True)
    assert left_running(ranks) == []


def test_no_rank_outlives_a_killed_kernel(fresh: Kernel):
    fresh.run(HANG)
    ranks = fresh.ranks()
    os.kill(int(fresh.run("import os\nprint(os.getpid())")), signal.SIGKILL)
    assert left_running(ranks) == []

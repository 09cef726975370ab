"""The main program of a rank: it waits for jobs on its pipe and never outlives the kernel."""

import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from playbook.runtime import environment, payload, rundir
from playbook.runtime.rank import Seat, current_phase, on_rank, report_table
from playbook.runtime.reporter import Courier, Reporter
from playbook.tables import TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a rank is told when it starts.

    `store` is the rendezvous file, `log` takes what is printed outside jobs, `method` is how it was started.
    """

    rank: int
    ranks: int
    backend: str
    device: str
    threads: int
    environment: Mapping[str, str]
    store: Path
    log: Path
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One job, as sent to each rank. `store` names the file of a new process group if one has to be made first."""

    number: int
    call: bytes
    directory: Path
    sys_path: tuple[str, ...]
    working_directory: str
    store: Path | None = None


class Line:
    """The rank's end of its pipe: orders in, messages out.

    A thread of its own reads; when the kernel's end closes it ends the process, even while the main thread hangs
    in a collective.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self.orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="playbook-orders", daemon=True).start()

    def send(self, kind: str, content: Any) -> None:
        """Send a message to the kernel."""
        data = pickle.dumps((kind, content), protocol=pickle.HIGHEST_PROTOCOL)
        with self._sending:
            self._connection.send_bytes(data)

    def _read(self) -> None:
        try:
            while True:
                self.orders.put(pickle.loads(self._connection.recv_bytes()))
        except (EOFError, OSError):
            os._exit(0)


def main(connection: Connection, settings: Settings) -> None:
    """Run as rank `settings.rank` until the kernel's end of `connection` closes."""
    die_with_parent(settings.method)
    redirect_output(settings.log)
    line = Line(connection)
    try:
        _start(settings)
    except BaseException as problem:  # whatever it was, the kernel must hear of it
        line.send("error", describe(problem, phase="starting"))
        time.sleep(60)  # the kernel kills this rank when it has heard from all
        return
    line.send("ready", None)
    courier = Courier(lambda events: line.send("events", events))
    while True:
        _perform(line.orders.get(), settings, line, courier)


def die_with_parent(method: str) -> None:
    """Make sure that this process ends with the kernel, whatever its threads are doing.

    The thread that reads the pipe is the first guard, but it needs the interpreter lock. The second is the
    descriptor that multiprocessing gives each child, which closes with its parent: the system kills the process when
    it does. The third, on Linux, is the death signal of the process that forked it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        with contextlib.suppress(OSError):  # not every system signals pipes
            fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
            if hasattr(fcntl, "F_SETSIG"):
                fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
            flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
            fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if sys.platform == "linux":
        before = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        orphaned = method == "spawn" and parent is not None and before != parent.pid
        if orphaned or os.getppid() != before:
            os._exit(0)


def redirect_output(path: Path) -> None:
    """Send descriptors 1 and 2 to a file: what native code prints is caught as well."""
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)


def describe(problem: BaseException, *, phase: str) -> dict[str, Any]:
    """What the kernel is told of an exception; plain text, since its class may be unknown there."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = str(Path(__file__).parent)
    while frames and frames[0].filename.startswith(ours):
        frames.pop(0)
    text = f"{type(problem).__name__}: {problem}".rstrip(": ")
    report = traceback.TracebackException.from_exception(problem)
    if frames:
        report.stack = traceback.StackSummary.from_list(frames)
    names = [kind.__name__ for kind in type(problem).__mro__]
    return {
        "cause": text,
        "kinds": names,
        "traceback": "".join(report.format()),
        "phase": phase,
        "time_s": time.monotonic(),
    }


def _start(settings: Settings) -> None:
    environment.adopt(settings.environment)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(file=2)
    from playbook.runtime import group  # torch comes in here, in the rank only

    group.claim_device(settings.device, settings.threads)
    _join(settings, settings.store)
    gc.collect()
    gc.freeze()  # what torch has loaded stays; collections between jobs then cost little


def _join(settings: Settings, store: Path) -> None:
    from playbook.runtime import group

    group.close_group()
    group.open_group(
        backend=settings.backend,
        rank=settings.rank,
        ranks=settings.ranks,
        device=settings.device,
        store=store,
    )


def _perform(order: Order, settings: Settings, line: Line, courier: Courier) -> None:
    """Run one job and report how it went."""
    from playbook.runtime import group

    redirect_output(rundir.log_path(order.directory, settings.rank))
    reporter = Reporter(rank=settings.rank, directory=order.directory, post=courier.post)
    seat = Seat(
        rank=settings.rank,
        ranks=settings.ranks,
        backend=settings.backend,
        device=settings.device,
        directory=order.directory,
    )
    with on_rank(seat, reporter):
        try:
            if order.store is not None:
                _join(settings, order.store)
            adopt_surroundings(order)
            result = payload.pack_result(call(order.call, reporter))
            outcome = ("done", {"value": result, "groups": group.groups_made(), "time_s": time.monotonic()})
        except BaseException as problem:  # SystemExit too: the rank must stay to be asked
            outcome = ("error", describe(problem, phase=reporter.phase))
            reporter.emit("error", outcome[1]["cause"], {})
    courier.flush()
    line.send(*outcome)
    redirect_output(settings.log)
    group.settle_memory()


def call(packed: bytes, reporter: Reporter) -> Any:
    """Run a packed function; its tables and its value go to the run directory."""
    current_phase("unpacking the function")
    function, args, levers = payload.unpack_call(packed)
    current_phase("running the function")
    value = function(*args, **levers)
    if (
        isinstance(value, dict)
        and isinstance(tables := value.get("tables"), dict)
        and tables.keys() <= TABLES.keys()
    ):
        value = {name: item for name, item in value.items() if name != "tables"}
        for name, rows in tables.items():
            report_table(name, rows)
    current_phase("returning the value")
    reporter.value(value)
    return value


def adopt_surroundings(order: Order) -> None:
    """See the modules and the files that the kernel sees now, not those of the time when this rank started."""
    if sys.path != list(order.sys_path):
        sys.path[:] = order.sys_path
    importlib.invalidate_caches()
    if Path.cwd() != Path(order.working_directory):
        os.chdir(order.working_directory)

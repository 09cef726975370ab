"""The main program of a rank: it waits for jobs on its pipe and runs them."""

import faulthandler
import gc
import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from playbook.runtime import environment, payload, rundir
from playbook.runtime.errors import describe
from playbook.runtime.guard import die_with_kernel, redirect_output
from playbook.runtime.rank import Seat, call, current_phase, on_rank
from playbook.runtime.reporter import Courier, Reporter
from playbook.runtime.surroundings import Surroundings, remember_modules

_LAST_WORDS_S = 60.0


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
    """One job, as sent to each rank.

    `call` is the packed function with its arguments. `store` names the rendezvous file of a new process
    group, if one has to be made first.
    """

    call: bytes
    directory: Path
    surroundings: Surroundings
    store: Path | None = None


class Line:
    """The rank's end of its pipe: orders in, messages out.

    A thread of its own reads. When the kernel's end closes, it ends the process, even while the main thread
    hangs in a collective.
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
    die_with_kernel(settings.method)
    redirect_output(settings.log)
    line = Line(connection)
    try:
        _start(settings)
    except BaseException as problem:  # whatever it was, the kernel must hear of it
        line.send("error", describe(problem, phase="starting"))
        time.sleep(_LAST_WORDS_S)  # the kernel kills this rank when it has heard from all
        return
    line.send("ready", None)
    courier = Courier(lambda events: line.send("events", events))
    while True:
        _perform(line.orders.get(), settings, line, courier)


def _start(settings: Settings) -> None:
    environment.adopt(settings.environment)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(file=2)
    from playbook.runtime import group  # brings torch, which the kernel does without

    group.claim_device(settings.device, settings.threads)
    _join(settings, settings.store)
    remember_modules()  # torch's many, once
    gc.collect()
    gc.freeze()  # what torch has loaded stays, so collections between jobs cost little


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
            value = _run(order, settings)
            outcome = ("done", {"value": value, "groups": group.groups_made()})
        except BaseException as problem:  # SystemExit too: the rank must stay to be asked
            told = describe(problem, phase=reporter.phase)
            outcome = ("error", told)
            reporter.emit("error", told["cause"], {"phase": told["phase"], "kinds": told["kinds"]})
    remember_modules()  # before the answer: whoever waits for it may edit a module at once
    courier.flush()
    line.send(*outcome)
    redirect_output(settings.log)
    group.settle_memory()


def _run(order: Order, settings: Settings) -> bytes:
    current_phase("unpacking the function")
    if order.store is not None:
        _join(settings, order.store)
    order.surroundings.adopt()
    function, args, levers = payload.unpack_call(order.call)
    return payload.pack_result(call(function, args, levers))

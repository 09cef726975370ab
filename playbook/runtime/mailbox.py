"""How other threads reach the pump: tasks for it to run, and a pipe that ends its wait."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable

Task = Callable[[], None]


class Mailbox:
    """Tasks for one thread. It waits on `waitable`, then calls `take`; any thread may `post` and `wake`."""

    def __init__(self) -> None:
        self._tasks: deque[Task] = deque()
        self._lock = threading.RLock()  # a garbage collection may call `wake` while this thread posts
        self._open = True
        self.waitable, self._bell = os.pipe()
        os.set_blocking(self.waitable, False)
        os.set_blocking(self._bell, False)

    def post(self, task: Task) -> None:
        """Have a task run by the thread that reads this mailbox, or at once if it has stopped reading."""
        with self._lock:
            reading = self._open
            if reading:
                self._tasks.append(task)
                self._ring()
        if not reading:
            task()

    def wake(self) -> None:
        """End the reader's wait; a garbage collection may call this at any moment."""
        with self._lock:  # else the bell could be closed, and its number be another file's, before it is rung
            if self._open:
                self._ring()

    def take(self) -> None:
        """Run what has been posted."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.waitable, 4096)
        while self._tasks:
            self._tasks.popleft()()

    def close(self) -> None:
        """Run what is left and stop reading."""
        with self._lock:
            self._open = False
        while self._tasks:
            self._tasks.popleft()()
        os.close(self.waitable)
        os.close(self._bell)

    def forget(self) -> None:
        """Stop ringing in a forked child, where another thread's lock would never be released."""
        self._lock, self._open = threading.RLock(), False

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full: the reader has been woken already
            os.write(self._bell, b"!")

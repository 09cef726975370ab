"""What the fork server imports once, so that every rank has it already. It must never touch CUDA.

The strategies' parts of torch are among it: they take a rank a second of its own, again after every restart.
"""

import signal
import threading

from playbook.runtime import environment

environment.complete(environment.HARMLESS_CUDA_CHECK)

import torch.distributed.fsdp  # noqa: E402 the check has to be set first
import torch.distributed.pipelining  # noqa: E402
import torch.distributed.tensor.parallel  # noqa: E402, F401

from playbook.runtime import group, worker  # noqa: E402, F401


def let_interrupts_through() -> None:
    """End the shelter from Ctrl-C that the kernel's thread gave this process while it imported.

    An interrupt goes to the kernel's whole process group and would kill a fork server that is still
    importing; so it starts with SIGINT blocked. One that came meanwhile is dropped.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)


_sheltered = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
if _sheltered and threading.current_thread() is threading.main_thread():
    let_interrupts_through()

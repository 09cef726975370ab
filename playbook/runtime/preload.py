"""What the fork server imports once, so that every rank has it already. It must never touch CUDA."""

import signal
import threading

import torch
import torch.distributed

from playbook.runtime import group, worker

__all__ = ["group", "torch", "worker"]


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

"""Tasks reach the pump's thread, also when it is about to stop."""

import os
import select
import threading

import pytest

from playbook.runtime.mailbox import Mailbox


def rings(mailbox: Mailbox) -> bool:
    return bool(select.select([mailbox.waitable], [], [], 0)[0])


def test_tasks_are_run_in_order_by_whoever_takes_them():
    mailbox, done = Mailbox(), []
    mailbox.post(lambda: done.append(1))
    mailbox.post(lambda: done.append(2))
    assert rings(mailbox)
    assert done == []
    mailbox.take()
    assert done == [1, 2]
    assert not rings(mailbox)
    mailbox.close()


def test_waking_many_times_never_blocks():
    mailbox = Mailbox()
    for _ in range(100_000):
        mailbox.wake()
    assert rings(mailbox)
    while rings(mailbox):
        mailbox.take()
    assert not rings(mailbox)
    mailbox.close()


def test_after_the_end_a_task_runs_at_once():
    mailbox, done = Mailbox(), []
    mailbox.post(lambda: done.append("before"))
    mailbox.close()
    mailbox.post(lambda: done.append("after"))
    mailbox.wake()
    assert done == ["before", "after"]


def test_waking_while_the_reader_stops_writes_into_no_other_file():
    for _ in range(200):
        mailbox = Mailbox()
        waking = threading.Thread(target=lambda mailbox=mailbox: [mailbox.wake() for _ in range(50)])
        waking.start()
        mailbox.close()
        ours, theirs = os.pipe()  # takes the numbers that have become free
        os.set_blocking(ours, False)
        waking.join()
        with pytest.raises(BlockingIOError):
            os.read(ours, 1)
        os.close(ours)
        os.close(theirs)


def test_a_forked_child_neither_rings_nor_waits_for_a_lock():
    mailbox = Mailbox()
    held = threading.Event()
    done = threading.Event()

    def hold():
        with mailbox._lock:
            held.set()
            done.wait(60)

    holding = threading.Thread(target=hold)
    holding.start()
    assert held.wait(60)
    mailbox.forget()
    mailbox.wake()
    assert not rings(mailbox)
    done.set()
    holding.join()
    mailbox.close()


def test_no_task_is_lost_between_threads():
    mailbox, done = Mailbox(), []
    threads = [
        threading.Thread(target=lambda: [mailbox.post(lambda: done.append(1)) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        mailbox.take()
    mailbox.close()
    assert len(done) == 800

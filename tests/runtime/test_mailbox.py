"""Tasks reach the pump's thread, also when it is about to stop."""

import select
import threading

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

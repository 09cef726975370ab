from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from torch.distributed.pipelining import schedules

from playbook.runtime.part import Watch
from playbook.runtime.pipeline_library import Mail
from playbook.runtime.torch_private import watched_messages


class Seen(Watch):
    def __init__(self):
        self.rows = []

    @contextmanager
    def during(self, kind, action, message=None):
        self.rows.append((kind, action, message))
        yield


def op(tensor) -> Any:
    return SimpleNamespace(tensor=tensor)


def test_a_wait_is_named_by_the_message_that_arrives():
    mail = Mail(watch=Seen())
    arriving, leaving = op("a"), op("b")
    mail.tell("receive", "m0/B/stage0", [arriving])
    mail.tell("send", "m1/F/stage0", [leaving])
    works = [object(), object()]
    mail.posted([leaving, arriving], works)
    with mail.waiting(works):
        pass
    assert mail.watch.rows == [
        ("receive", "m0/B/stage0", "a"),
        ("send", "m1/F/stage0", "b"),
        ("wait", "m0/B/stage0", "a"),
    ]


def test_a_wait_for_nothing_but_sends_is_a_drain():
    mail = Mail(watch=Seen())
    leaving, works = op("b"), [object()]
    mail.tell("send", "m1/F/stage0", [leaving])
    mail.posted([leaving], works)
    with mail.waiting(works):
        pass
    with mail.waiting(works):  # nothing is under way any more
        pass
    assert mail.watch.rows[1:] == [("drain", "m1/F/stage0", "b")]


def test_one_work_may_carry_several_messages():
    mail = Mail(watch=Seen())
    messages, works = [op("a"), op("b")], [object()]
    mail.tell("receive", "m0/B/stage0", messages[:1])
    mail.tell("receive", "m0/F/stage1", messages[1:])
    mail.posted(messages, works)
    with mail.waiting(works):
        pass
    assert [row[1] for row in mail.watch.rows[2:]] == ["m0/B/stage0", "m0/F/stage1"]


def test_torchs_functions_are_watched_only_while_the_context_is_open():
    posted, waited = [], []

    @contextmanager
    def waiting(works):
        waited.append(list(works))
        yield

    before = schedules._batch_p2p, schedules._wait_batch_p2p
    with watched_messages(lambda messages, works: posted.append((messages, works)), waiting):
        schedules._wait_batch_p2p(schedules._batch_p2p([]))
    assert posted == [([], [])]
    assert waited == [[]]
    assert (schedules._batch_p2p, schedules._wait_batch_p2p) == before

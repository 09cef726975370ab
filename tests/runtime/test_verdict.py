"""Who failed first, by what is known of every rank."""

import signal
from pathlib import Path

import pytest

from playbook.runtime.verdict import Evidence, is_peers_fault, judge

GLOO = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[127.0.0.1]:54321"
)
NCCL = "DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network error"


def evidence(
    rank: int, time_s: float, *, cause: str = "", exit_code: int | None = None, kinds=()
) -> Evidence:
    return Evidence(rank=rank, time_s=time_s, cause=cause, exit_code=exit_code, kinds=kinds, phase="step")


def verdict(*known: Evidence, directory: Path | None = None, **more):
    return judge(known, job="tp", ranks=4, directory=directory, **more)


def test_a_signal_outweighs_an_exception_and_a_lost_connection():
    failure = verdict(
        evidence(0, 1.0, cause=GLOO),
        evidence(2, 1.1, cause="ValueError: odd"),
        evidence(3, 1.4, exit_code=-signal.SIGSEGV),
    )
    assert (failure.rank, failure.cause) == (3, "killed by SIGSEGV")
    assert failure.others == (2,)
    assert failure.victims == (0, 1)


def test_an_exception_of_its_own_outweighs_a_lost_connection():
    failure = verdict(evidence(0, 1.0, cause=GLOO), evidence(2, 1.3, cause="ValueError: odd"))
    assert (failure.rank, failure.victims) == (2, (0, 1, 3))


def test_an_exit_outweighs_an_exception():
    assert verdict(evidence(0, 1.0, cause="ValueError: odd"), evidence(1, 1.1, exit_code=3)).rank == 1


def test_among_equals_the_first_counts():
    failure = verdict(evidence(2, 1.2, cause="ValueError: odd"), evidence(1, 1.1, cause="ValueError: odd"))
    assert (failure.rank, failure.others, failure.victims) == (1, (2,), (0, 3))


def test_only_lost_connections_still_give_a_name():
    failure = verdict(evidence(1, 1.2, cause=GLOO), evidence(0, 1.3, cause=NCCL))
    assert failure.rank == 1
    assert failure.victims == (0, 2, 3)


def test_ranks_that_had_returned_were_not_waiting():
    assert verdict(evidence(1, 1.0, cause="ValueError: odd"), finished=[0, 3]).victims == (2,)


def test_an_abort_by_the_watchdog_is_a_lost_connection(tmp_path: Path):
    (tmp_path / "rank0.log").write_text(f"terminate called after throwing\nwhat(): {NCCL}\n")
    failure = verdict(
        evidence(0, 1.0, exit_code=-signal.SIGABRT),
        evidence(2, 1.2, cause="ValueError: odd"),
        directory=tmp_path,
    )
    assert failure.rank == 2


def test_the_stack_of_a_fault_is_taken_from_the_log(tmp_path: Path):
    (tmp_path / "rank1.log").write_text(
        "noise\nFatal Python error: Segmentation fault\n  File a.py, line 3\n"
    )
    failure = verdict(evidence(1, 1.0, exit_code=-11), directory=tmp_path)
    assert failure.traceback.startswith("Fatal Python error: Segmentation fault")
    assert failure.log_tail.startswith("noise")


def test_the_phase_on_disk_outweighs_the_one_that_was_heard(tmp_path: Path):
    (tmp_path / "rank1.jsonl").write_text('{"rank":1,"kind":"phase","name":"backward"}\n')
    assert verdict(evidence(1, 1.0, exit_code=-9), directory=tmp_path).phase == "backward"


@pytest.mark.parametrize(("oom", "words"), [(True, "killer has run"), (False, "often for lack of memory")])
def test_a_kill_hints_at_memory(oom: bool, words: str):
    assert words in verdict(evidence(0, 1.0, exit_code=-signal.SIGKILL), oom=oom).hint


@pytest.mark.parametrize(
    ("cause", "kinds", "peers"),
    [
        (GLOO, (), True),
        (NCCL, (), True),
        ("RuntimeError: Timed out waiting 1800000ms for recv operation to complete", (), True),
        ("BrokenPipeError: [Errno 32]", ("BrokenPipeError", "ConnectionError", "OSError"), True),
        ("ValueError: rows 7 do not divide by 2", ("ValueError",), False),
        (
            "RuntimeError: [enforce fail at gloo/transport/tcp/pair.cc] op.preamble.length <= op.nbytes",
            (),
            False,
        ),
    ],
)
def test_a_lost_connection_is_told_from_a_mistake(cause: str, kinds, peers: bool):
    assert is_peers_fault(cause, kinds) is peers

"""What a rank reports is on disk at once and reaches the kernel in order."""

import threading
from pathlib import Path

import pytest

from playbook.runtime import rank, rundir
from playbook.runtime.rank import Seat, as_columns, call, current_phase, emit, here, on_rank, report_table
from playbook.runtime.reporter import Courier, Reporter


@pytest.fixture
def reporter(tmp_path: Path):
    """A reporter of rank 1 and what it has posted."""
    posted: list[dict] = []
    made = Reporter(rank=1, directory=tmp_path, post=posted.append)
    seat = Seat(rank=1, ranks=2, backend="gloo", device="cpu", directory=tmp_path)
    with on_rank(seat, made):
        yield made, posted


def records(reporter: Reporter) -> list[dict]:
    return rundir.read_records(rundir.records_path(reporter.directory, 1))


def test_an_event_is_on_disk_before_emit_returns(reporter):
    made, posted = reporter
    emit("mark", "here", bytes=7)
    (record,) = records(made)
    assert (record["rank"], record["kind"], record["name"], record["bytes"]) == (1, "mark", "here", 7)
    assert posted == [record]


def test_the_phase_is_remembered(reporter):
    made, _ = reporter
    current_phase("backward")
    assert made.phase == "backward"
    assert records(made)[-1]["kind"] == "phase"


def test_frequent_progress_is_thinned_out_but_its_end_is_kept(reporter):
    _, posted = reporter
    for done in range(1, 1001):
        emit("progress", "train", done=done, total=1000)
    assert posted[0]["done"] == 1
    assert posted[-1]["done"] == 1000
    assert len(posted) < 200


def test_rows_go_to_disk_and_only_their_number_to_the_kernel(reporter):
    made, posted = reporter
    report_table("memory", [{"op": "a", "bytes": 1}, {"op": "b"}])
    table = next(record for record in records(made) if record["kind"] == "table")
    assert table["columns"] == {"op": ["a", "b"], "bytes": [1, None], "rank": [1, 1]}
    assert [(event["kind"], event["name"], event["rows"]) for event in posted] == [("rows", "memory", 2)]


def test_unknown_tables_and_columns_are_refused(reporter):
    with pytest.raises(
        ValueError, match="table 'speed' is not known; tables are memory, traffic, timeline, parity"
    ):
        report_table("speed", [])
    with pytest.raises(
        ValueError, match="table memory has no column 'colour'; its columns are scenario, rank"
    ):
        report_table("memory", [{"colour": "red"}])


def test_returned_tables_become_the_runs(reporter):
    made, _ = reporter
    assert call(lambda x: {"x": x, "tables": {"parity": [{"quantity": "loss"}]}}, (3,), {}) == {"x": 3}
    kinds = [record["kind"] for record in records(made)]
    assert kinds.count("table") == 1
    assert records(made)[-1]["value"] == {"x": 3}


def test_a_dict_with_tables_of_its_own_is_left_alone(reporter):
    value = {"tables": {"chairs": 4}}
    assert call(lambda: value, (), {}) == value


def test_outside_a_rank_reports_are_dropped():
    emit("mark", "nobody hears")
    current_phase("nowhere")
    report_table("memory", [])
    with pytest.raises(ValueError, match="does not run on a rank"):
        here()


def test_inside_a_rank_its_place_is_known(reporter):
    assert (here().rank, here().ranks, here().device) == (1, 2, "cpu")


def test_a_thread_that_outlives_its_job_is_not_heard(tmp_path: Path):
    posted: list[dict] = []
    made = Reporter(rank=0, directory=tmp_path, post=posted.append)
    made.close()
    made.close()
    made.emit("mark", "late", {})
    assert rundir.read_records(rundir.records_path(tmp_path, 0)) == []
    assert posted == []


def test_rows_become_columns():
    assert as_columns({"a": (1, 2)}) == {"a": [1, 2]}
    assert as_columns([]) == {}


def test_a_courier_keeps_the_order_and_never_makes_a_rank_wait():
    sent: list[dict] = []
    free = threading.Event()

    def send(batch: list[dict]) -> None:
        free.wait(30)
        sent.extend(batch)

    courier = Courier(send)
    for number in range(500):
        courier.post({"kind": "step", "name": "", "n": number})
    assert sent == []
    free.set()
    courier.flush()
    assert [event["n"] for event in sent] == list(range(500))


def test_a_kernel_that_does_not_read_costs_stale_progress_first(monkeypatch):
    from playbook.runtime import reporter as module

    monkeypatch.setattr(module, "_LONGEST_QUEUE", 10)
    sent: list[dict] = []
    held = threading.Event()
    courier = Courier(lambda batch: (held.wait(30), sent.extend(batch)))
    courier.post({"kind": "mark", "name": "first"})
    while courier._waiting:  # until it hangs in sending that one
        pass
    for number in range(9):
        courier.post({"kind": "progress", "name": "p", "n": number})
    for number in range(4):
        courier.post({"kind": "mark", "name": str(number)})
    held.set()
    courier.flush()
    assert [event["name"] for event in sent if event["kind"] == "mark"] == ["first", "0", "1", "2", "3"]
    assert rank._current is None

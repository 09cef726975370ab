"""`playbook schedule`."""

import json

import pytest


def test_schedule_gives_the_idle_time_in_both_conventions(answer, command):
    # p = 4, m = 16, equal costs of one unit each: makespan 3 (m + p - 1), idle 3 (p - 1).
    found = answer("schedule 1f1b --stages 4 --microbatches 16")
    assert found["makespan"] == 57
    assert found["idle_over_makespan"] == pytest.approx(3 / 19)
    assert found["idle_over_ideal"] == pytest.approx(3 / 16)
    assert found["peak_live"] == [4, 3, 2, 1]
    assert found["span_idle"] == 9
    text = command("schedule gpipe --stages 4 --microbatches 4")[1]
    assert "42.9\N{THIN SPACE}%" in text
    assert "source: simulated" in text


def test_schedule_takes_costs_for_each_stage_links_and_stragglers(answer):
    # Rank 1 twice as slow: its 2 + 4 a micro-batch, 4 of them, and rank 0's F and B around them.
    found = answer("schedule 1f1b --stages 2 --microbatches 4 --straggler 1:2")
    assert found["makespan"] == 1 + 4 * 6 + 2
    assert found["ideal"] == 18
    found = answer("schedule gpipe --stages 2 --microbatches 1 --forward 1,3 --backward 2 --recompute 1")
    assert found["makespan"] == 1 + 3 + 3 + 3
    # 0.5 s + 100 B / (200 B/s) each way, waited for on both ranks.
    link = "--latency 0.5 --bandwidth 200 --message-bytes 100"
    found = answer(f"schedule gpipe --stages 2 --microbatches 1 {link}")
    assert found["makespan"] == 8
    assert found["exposed_communication"] == [1, 1]


def test_schedule_names_stages_formula_and_the_ways_of_sending(command):
    text = command("schedule interleaved-1f1b --stages 2 --microbatches 4 --chunks 2")[1]
    assert "rank 0 holds stages 0 and 2; rank 1 holds stages 1 and 3 and the loss" in text
    assert "(p − 1)(f + b) = (p − 1)(F + B)/v = 3 cost units" in text
    sizes = "--stages 2 --microbatches 4"
    assert "deadlock: rank 0" in command(f"schedule 1f1b {sizes} --blocking-send --deferred-receives")[2]
    assert command(f"schedule 1f1b {sizes} --comm 0.1 --one-queue")[0] == 0


def test_schedule_writes_whole_makespans_in_full(command):
    """zbv with 64 ranks and 512 micro-batches: 6 · 512 of work and p − 1 = 63 idle."""
    text = command("schedule zbv --stages 64 --microbatches 512")[1]
    assert "makespan                                    3\N{THIN SPACE}135 cost units" in text
    assert "= 63 cost units" in text


def test_schedule_says_what_a_chunk_costs_beside_a_whole_stage(command):
    """p = 4, m = 8: 33 whole stages; with 2 chunks 57 halves, which is less."""
    sizes = "--stages 4 --microbatches 8"
    assert (
        "makespan                                    33 cost units\n" in command(f"schedule 1f1b {sizes}")[1]
    )
    assert (
        "57 cost units (a chunk is 1/2 of a rank's layers: 28.5 in costs of a whole stage)"
        in (command(f"schedule interleaved-1f1b {sizes} --chunks 2")[1])
    )


def test_schedule_counts_seconds_where_messages_do(command):
    """There and back: 3 of work on each of 2 ranks, and 2 messages of 0.5 s."""
    link = "--latency 0.25 --bandwidth 400 --message-bytes 100"
    text = command(f"schedule gpipe --stages 2 --microbatches 1 {link}")[1]
    assert "7\N{THIN SPACE}s\n" in text
    assert "cost units" not in text


def test_schedule_notes_costs_without_effect_and_single_chunks(command):
    sizes = "--stages 4 --microbatches 8"
    text = command(f"schedule zb-h1 {sizes} --overlap 3 --backward 2")[1]
    assert "note: --overlap has no effect: zb-h1 has no overlapped pairs" in text
    assert "note: --backward has no effect: zb-h1 runs every backward in two parts" in text
    assert "no effect" not in command(f"schedule dualpipe {sizes} --overlap 3 --backward 2")[1]
    text = command(f"schedule interleaved-1f1b {sizes}")[1]
    assert "note: chunks=1: the same order as 1f1b; give chunks=2 or more to interleave" in text


def test_schedule_names_a_file_that_is_no_text(command, tmp_path):
    path = tmp_path / "order.csv"
    path.write_bytes(b"\xff\xfe")
    assert f"{path}: this is no text in UTF-8" in command(f"schedule {path}")[2]


def test_schedule_writes_order_timeline_and_trace(command, tmp_path):
    paths = {name: tmp_path / name for name in ("order-csv", "timeline-csv", "chrome-trace")}
    told = " ".join(f"--{name} {path}" for name, path in paths.items())
    assert command(f"schedule 1f1b --stages 2 --microbatches 2 {told}")[0] == 0
    assert paths["order-csv"].read_text() == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert paths["timeline-csv"].read_text().startswith("scenario,rank,op")
    assert len(json.loads(paths["chrome-trace"].read_text())["traceEvents"]) == 5 + 8 + 8


def test_schedule_takes_an_order_from_a_file(answer, tmp_path):
    path = tmp_path / "order.csv"
    path.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert answer(f"schedule {path}")["makespan"] == 9


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("schedule 9f9b --stages 4 --microbatches 8", "'9f9b' is not a schedule; use one of"),
        ("schedule 1f1b --stages 0 --microbatches 8", "stages=0; use 1 or more"),
        ("schedule 1f1b --stages 4", "microbatches is missing"),
        ("schedule 1f1b --stages 4 --microbatches 8 --forward=-1", "forward=-1.0 must be at least 0"),
        ("schedule /nowhere.csv", "/nowhere.csv"),
        ("schedule 1f1b --stages 2 --microbatches 2 --forward a", "forward='a' must be a number, or one for"),
        ("schedule 1f1b --stages 2 --microbatches 2 --straggler 2", "straggler='2' must be RANK:FACTOR"),
        ("schedule 1f1b --stages 2 --microbatches 2 --latency 1", "a link has both; give --bandwidth too"),
        ("schedule 1f1b --stages 2 --microbatches 2 --message-bytes 1", "give --latency and --bandwidth too"),
        ("schedule 1f1b --stages 4", "give --microbatches, as in: schedule 1f1b --stages 4"),
        ("schedule zbv --microbatches 4", "stages is missing; give --stages"),
        ("schedule 1f1b --stages 4 --microbatches 8 --straggler 1:2,1:3", "rank 1 already has 2"),
        ("schedule dualpipe --stages 4 --microbatches 8 --overlap 0", "use 2 or more"),
        ("schedule dualpipe --stages 4 --microbatches 8 --overlap=-2", "use 2 or more"),
        (
            "schedule 1f1b --stages 2 --microbatches 2 --one-queue --blocking-send",
            "--one-queue sends beside the computation; leave it or --blocking-send out",
        ),
        ("schedule 1f1b --stages 100000 --microbatches 1000000", "use microbatches=25 or fewer"),
    ],
)
def test_what_the_caller_must_change_is_one_line_and_status_2(command, line, text):
    for words in (line, f"{line} --json"):
        status, out, err = command(words)
        assert status == 2
        assert out == ""
        assert len(err.splitlines()) == 1
        assert err.startswith("playbook: ")
        assert text in err

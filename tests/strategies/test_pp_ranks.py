"""Pipeline parallelism on real ranks: parity, messages by hand, the order of actions, planted faults."""

from dataclasses import replace

import pytest

from playbook.lessons import source
from playbook.program.schedule import schedule
from playbook.strategies.pp.plan import LIBRARY_SCHEDULES
from playbook.strategies.pp.ranks import LIBRARY

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

MESSAGE = 1 * 8 * 24 * 4
"""FP32 hidden states of one sequence of 8 tokens, 24 features: 768 bytes."""

FIXED = {"sequence": 8, "micro_batch": 1, "repeats": 1}


@pytest.fixture
def deep(tiny):
    return replace(tiny, name="deep", layers=4)


def compute(run, rank):
    rows = run.timeline[(run.timeline["rank"] == rank) & (run.timeline["lane"] == "compute")]
    return rows.sort_values("start_s")


@pytest.mark.parametrize("by", ["hand", "library"])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_four_ranks_compute_what_one_process_does(four, deep, by, name):
    run = four.submit("pp", by=by, model=deep, schedule=name, **FIXED).result(60)
    for value in run.values:
        assert value["parity"]["ok"]
        assert max(value["parity"][f"{part}_error"] for part in ("loss", "grad", "step")) <= 1e-12


@pytest.mark.parametrize("by", ["hand", "library"])
def test_two_chunks_a_rank_pass_too(two, deep, by):
    run = two.submit("pp", by=by, model=deep, schedule="interleaved-1f1b", chunks=2, **FIXED).result(60)
    assert run.values[0]["parity"]["ok"]


def test_stages_may_differ_and_micro_batches_be_fewer_than_stages(four, tiny):
    model = replace(tiny, layers=6)
    run = four.submit("pp", model=model, parity="model", stage_layers=(2, 1, 1, 2), microbatches=2, **FIXED)
    assert run.result(60).values[0]["parity"]["ok"]


def test_a_v_brings_the_loss_to_rank_0(two, deep, tmp_path):
    order = tmp_path / "v.csv"
    order.write_text("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")
    run = two.submit("pp", model=deep, parity="model", schedule=str(order), chunks=2, microbatches=1, **FIXED)
    done = run.result(60)
    assert done.values[0]["parity"]["ok"]
    # stages 0 -> 1 and 3 -> 2 in backward from rank 0; 1 -> 2 stays on rank 1
    assert done.values[0]["traffic"]["calls"] == {"send": 2}
    assert sorted(
        done.traffic["op"][(done.traffic["rank"] == 0) & (done.traffic["collective"] == "send")]
    ) == [
        "m0/B/stage3/send@pp#0",
        "m0/F/stage0/send@pp#0",
    ]


@pytest.mark.parametrize("by", ["hand", "library"])
def test_every_boundary_sends_a_message_a_micro_batch_and_direction(four, deep, by):
    run = four.submit("pp", by=by, model=deep, parity="off", **FIXED).result(60)
    sent = [value["traffic"] for value in run.values]
    assert [traffic["calls"]["send"] for traffic in sent] == [4, 8, 8, 4]
    assert [traffic["wire_bytes"] for traffic in sent] == [count * MESSAGE for count in (4, 8, 8, 4)]


@pytest.mark.parametrize("by", ["hand", "library"])
def test_a_message_is_named_by_the_action_that_made_it(two, tiny, by):
    run = two.submit("pp", by=by, model=tiny, parity="off", microbatches=2, **FIXED).result(60)
    assert set(run.traffic["op"]) == {
        *(f"m{m}/F/stage0/send@pp#0" for m in (0, 1)),
        *(f"m{m}/F/stage1/receive@pp#0" for m in (0, 1)),
        *(f"m{m}/B/stage1/send@pp#0" for m in (0, 1)),
        *(f"m{m}/B/stage0/receive@pp#0" for m in (0, 1)),
    }
    assert set(run.traffic["payload_bytes"]) == {MESSAGE}


@pytest.mark.parametrize("by", ["hand", "library"])
def test_chunks_multiply_the_messages(two, deep, by):
    levers = {"schedule": "interleaved-1f1b", "chunks": 2, "microbatches": 2}
    run = two.submit("pp", by=by, model=deep, parity="off", **levers, **FIXED).result(60)
    # rank 0 sends stages 0 and 2 forward and stage 2 back; rank 1 stage 1 forward and stages 3 and 1 back
    assert [value["traffic"]["calls"]["send"] for value in run.values] == [6, 6]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_ranks_run_the_schedules_actions_in_its_order(four, deep, name):
    run = four.submit("pp", model=deep, parity="off", schedule=name, **FIXED).result(60)
    orders = schedule(name, 4, 4).orders
    for rank in range(4):
        assert list(compute(run, rank)["label"]) == [str(action) for action in orders[rank]]
    assert run.timeline["start_s"].min() == 0
    assert set(run.timeline["source"]) == {"measured:gloo"}


def test_no_action_begins_before_what_it_needs_has_ended(four, deep):
    run = four.submit("pp", model=deep, parity="off", **FIXED).result(60)
    rows = run.timeline[run.timeline["lane"] == "compute"].set_index("op")
    ends = rows["start_s"] + rows["duration_s"]
    for microbatch in range(4):
        for stage in range(1, 4):
            later, earlier = f"m{microbatch}/F/stage{stage}", f"m{microbatch}/F/stage{stage - 1}"
            assert rows["start_s"][later] >= ends[earlier]
            later, earlier = f"m{microbatch}/B/stage{stage - 1}", f"m{microbatch}/B/stage{stage}"
            assert rows["start_s"][later] >= ends[earlier]


def test_stretched_actions_take_their_cost_and_the_pipeline_its_ideal_time(four, deep):
    run = four.submit("pp", model=deep, parity="off", unit_s=0.05, microbatches=4, **FIXED).result(60)
    rows = run.timeline[run.timeline["lane"] == "compute"]
    for kind, cost in (("forward", 1), ("backward", 2)):
        assert rows[rows["kind"] == kind]["duration_s"].min() >= 0.9 * cost * 0.05
    makespan = (rows["start_s"] + rows["duration_s"]).max()
    ideal = (4 + 4 - 1) * (1 + 2) * 0.05
    assert ideal <= makespan <= 1.6 * ideal
    assert set(run.timeline["source"]) == {"emulated"}


def test_actions_are_streamed_as_they_end(two, tiny):
    job = two.submit("pp", model=tiny, parity="off", microbatches=2, **FIXED)
    job.result(60)
    seen = [event for event in job.events if event["kind"] == "action" and event["what"] == "forward"]
    assert sorted(event["name"] for event in seen) == [f"m{m}/F/stage{s}" for m in (0, 1) for s in (0, 1)]
    assert all(event["start_s"] >= 0 and event["duration_s"] > 0 for event in seen)


def test_a_rank_holds_its_stages_and_the_terms_add_up(two, tiny):
    run = two.submit("pp", model=tiny, parity="off", **FIXED).result(60)
    held = []
    for value in run.values:
        terms = {row["term"]: row["bytes"] for row in value["memory"]["terms"]}
        assert sum(terms.values()) == value["memory"]["peak_bytes"]
        held.append(terms["parameters"])
    # table 3 168 + layer 5 520; layer 5 520 + norm 24 + head 3 168
    assert held == [4 * 8_688, 4 * 8_712]


@pytest.mark.parametrize("fault", ["skipped_collective", "wrong_offset"])
def test_a_planted_fault_fails_the_gate(two, tiny, fault):
    value = two.submit("pp", model=tiny, fault=fault, **FIXED).result(60).values[0]
    assert not value["parity"]["ok"]
    assert value["parity"]["grad_error"] > 1e-3


@pytest.mark.parametrize(
    ("levers", "text"),
    [
        ({"by": "library", "microbatches": 1}, "microbatches=1 with stages=2: torch's 1f1b wants"),
        ({"microbatches": 0}, "microbatches=0"),
        ({"schedule": "zb-h7"}, "zb-h7. is not known"),
        ({"unit_s": -1}, "unit_s=-1"),
    ],
)
def test_what_cannot_run_is_refused_before_the_ranks_are_asked(two, tiny, levers, text):
    with pytest.raises(ValueError, match=text):
        two.submit("pp", model=tiny, **levers)


def test_a_tied_table_is_refused(two, tiny):
    with pytest.raises(ValueError, match="untied"):
        two.submit("pp", model=replace(tiny, tied=True))


def test_the_plan_and_the_code_name_the_same_schedules_of_the_library():
    assert set(LIBRARY) == set(LIBRARY_SCHEDULES)


def test_the_code_by_hand_has_at_most_forty_lines():
    assert source("pp").lines <= 40
    assert "dist.isend" in source("pp").text
    assert "dist.irecv" in source("pp").text

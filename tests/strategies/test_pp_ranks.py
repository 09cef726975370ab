"""Pipeline parallelism on real ranks: parity, messages by hand, the order of actions, planted faults."""

from dataclasses import replace

import pytest

from playbook.lessons import source
from playbook.program.schedule import schedule
from playbook.runtime.pool import Pool
from playbook.schedules import find_plan, plans
from playbook.strategies.pp.plan import LIBRARY_SCHEDULES
from playbook.strategies.pp.ranks import LIBRARY

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

MESSAGE = 1 * 8 * 24 * 4
"""FP32 hidden states of one sequence of 8 tokens, 24 features: 768 bytes."""

TWO = ("interleaved-1f1b", "looped-bfs", "interleaved-zero-bubble")
"""Schedules of several chunks that can do with one."""

FIXED = {"sequence": 8, "micro_batch": 1, "repeats": 1}


@pytest.fixture
def deep(tiny):
    return replace(tiny, name="deep", layers=4)


def compute(run, rank):
    rows = run.timeline[(run.timeline["rank"] == rank) & (run.timeline["lane"] == "compute")]
    return rows.sort_values("start_s")


def stages_of(name):
    return find_plan(name).default_chunks if name not in TWO else 2


def submit(pool, tiny, name, **levers):
    """Run a schedule on four ranks, a layer a stage, eight micro-batches of one short sequence."""
    chunks = stages_of(name)
    model = replace(tiny, name="deep", layers=4 * chunks)
    fixed = {"schedule": name, "chunks": chunks, "microbatches": 8, "model": model, **FIXED}
    return pool.submit("pp", **{**fixed, **levers}).result(60)


def orders_of(name):
    return schedule(name, 4, 8, stages_of(name))


@pytest.mark.parametrize("name", plans())
def test_four_ranks_compute_by_hand_what_one_process_does(four, tiny, name):
    run = submit(four, tiny, name)
    for value in run.values:
        assert value["parity"]["ok"]
        assert max(value["parity"][f"{part}_error"] for part in ("loss", "grad", "step")) <= 1e-12
    order = orders_of(name)
    for rank in range(4):
        assert list(compute(run, rank)["label"]) == [str(action) for action in order.orders[rank]]
    assert [value["pipeline"]["peak_live"] for value in run.values] == list(order.simulate().peak_live)


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_computes_the_same(four, tiny, name):
    run = submit(four, tiny, name, by="library", seeds=(0,), steps=1)
    value = run.values[0]
    assert value["parity"]["ok"]
    assert max(value["parity"][f"{part}_error"] for part in ("loss", "grad", "step")) <= 1e-12
    order = orders_of(name)
    for rank in range(4):
        ran = compute(run, rank)["label"]
        assert sorted(ran) == sorted(str(action) for action in order.orders[rank])
    assert set(run.timeline["kind"]) >= {"forward", "wait", "send"}


RECOMPUTED = [
    *(("hand", name) for name in ("1f1b", "zb-h1", "zbv", "dualpipe")),
    *(("library", name) for name in ("1f1b", "zb-h1", "zbv", "dualpipe-v")),
]


@pytest.mark.parametrize("recompute", ["full", "selective"])
@pytest.mark.parametrize(("by", "name"), RECOMPUTED)
def test_recomputed_layers_compute_what_one_process_does(two, deep, by, name, recompute):
    levers = {"schedule": name, "chunks": stages_of(name), "microbatches": 4, "seeds": (0,), "steps": 1}
    run = two.submit("pp", by=by, model=deep, recompute=recompute, **levers, **FIXED).result(60)
    parity = run.values[0]["parity"]
    assert parity["ok"]
    assert max(parity[f"{part}_error"] for part in ("loss", "grad", "step")) <= 1e-12


@pytest.mark.parametrize("by", ["hand", "library"])
def test_two_chunks_a_rank_pass_too(two, deep, by):
    run = two.submit("pp", by=by, model=deep, schedule="interleaved-1f1b", chunks=2, **FIXED).result(60)
    assert run.values[0]["parity"]["ok"]


def test_stages_may_differ_and_micro_batches_be_fewer_than_stages(four, tiny):
    model = replace(tiny, layers=6)
    run = four.submit("pp", model=model, parity="model", stage_layers=(2, 1, 1, 2), microbatches=2, **FIXED)
    assert run.result(60).values[0]["parity"]["ok"]


def test_the_middle_of_three_ranks_adds_its_own_two_copies(tiny):
    with Pool(ranks=3, backend="gloo") as pool:
        levers = {"schedule": "dualpipe", "microbatches": 4}
        run = pool.submit("pp", model=replace(tiny, layers=3), **levers, **FIXED).result(100)
    assert run.values[0]["parity"]["ok"]
    sums = run.traffic[run.traffic["collective"] == "all_reduce"]
    assert set(sums["rank"]) == {0, 2}


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


def test_no_action_begins_before_what_it_needs_has_ended(four, deep):
    run = four.submit("pp", model=deep, parity="off", **FIXED).result(60)
    assert run.timeline["start_s"].min() == 0
    assert set(run.timeline["source"]) == {"measured:gloo"}
    assert run.values[0]["pipeline"]["not_tried"].startswith("not tried: ranks share the processor's cores")
    rows = run.timeline[run.timeline["lane"] == "compute"].set_index("op")
    ends = rows["start_s"] + rows["duration_s"]
    for microbatch in range(4):
        for stage in range(1, 4):
            later, earlier = f"m{microbatch}/F/stage{stage}", f"m{microbatch}/F/stage{stage - 1}"
            assert rows["start_s"][later] >= ends[earlier]
            later, earlier = f"m{microbatch}/B/stage{stage - 1}", f"m{microbatch}/B/stage{stage}"
            assert rows["start_s"][later] >= ends[earlier]


def emulated(pool, tiny, name, **levers):
    run = submit(pool, tiny, name, parity="off", unit_s=0.02, **levers)
    assert set(run.timeline["source"]) == {"emulated"}
    return run, run.values[0]["pipeline"]


@pytest.mark.parametrize("by", ["hand", "library"])
@pytest.mark.parametrize("name", ["1f1b", "zbv"])
def test_emulated_actions_take_their_cost_and_the_step_no_less_than_simulated(four, tiny, name, by):
    run, step = emulated(four, tiny, name, by=by, forward=1, backward=2)
    ideal = {"1f1b": 33, "zbv": 51}[name]  # units, at F = I = W
    assert step["predicted_makespan_s"] == pytest.approx(ideal * 0.02)
    assert step["makespan_s"] >= 0.98 * ideal * 0.02
    assert step["error"] == pytest.approx(step["makespan_s"] / (ideal * 0.02) - 1)
    rows = run.timeline[run.timeline["lane"] == "compute"]
    for kind, cost in (("forward", 1), ("backward", 2), ("backward_input", 1), ("backward_weight", 1)):
        durations = rows[rows["kind"] == kind]["duration_s"]
        assert durations.empty or durations.min() >= 0.9 * cost * 0.02
    assert set(step["errors"]) == set(rows["kind"])


def test_an_emulated_message_keeps_its_consumer_waiting_for_its_latency(four, tiny):
    run, step = emulated(four, tiny, "1f1b", microbatches=1, latency=2, forward=1, backward=2)
    rows = run.timeline[run.timeline["lane"] == "compute"].set_index("op")
    for stage in range(1, 4):
        sender = rows.loc[f"m0/F/stage{stage - 1}"]
        waited = rows["start_s"][f"m0/F/stage{stage}"] - sender["start_s"] - sender["duration_s"]
        assert waited >= 0.9 * 2 * 0.02
    # four F, four B and six hops
    assert step["predicted_makespan_s"] == pytest.approx((4 + 8 + 6 * 2) * 0.02)


def test_uneven_stages_and_overlapped_pairs_are_emulated_as_they_are_simulated(four, tiny):
    run, step = emulated(four, tiny, "dualpipe", forward=[1, 2, 1, 1], overlap=3.5)
    order = orders_of("dualpipe")
    simulated = order.simulate(forward=[1, 2, 1, 1], overlap=3.5)
    assert step["predicted_makespan_s"] == pytest.approx(simulated.makespan * 0.02)
    rows = run.timeline[run.timeline["lane"] == "compute"].set_index("op")
    pairs = [
        (before.id, action.id)
        for actions in order.orders
        for before, action in zip(actions, actions[1:], strict=False)
        if action.beside
    ]
    assert pairs
    for first, second in pairs:
        assert rows["start_s"][first] == rows["start_s"][second]
        assert rows["duration_s"][first] == rows["duration_s"][second] >= 0.9 * 3.5 * 0.02


def test_actions_are_streamed_as_they_end(two, tiny):
    job = two.submit("pp", model=tiny, parity="off", microbatches=2, **FIXED)
    job.result(60)
    seen = [event for event in job.events if event["kind"] == "action" and event["what"] == "forward"]
    assert sorted(event["name"] for event in seen) == [f"m{m}/F/stage{s}" for m in (0, 1) for s in (0, 1)]
    assert all(event["start_s"] >= 0 and event["duration_s"] > 0 for event in seen)


@pytest.mark.parametrize("by", ["hand", "library"])
def test_waits_and_sends_are_on_the_timeline_with_their_bytes(two, tiny, by):
    run = two.submit("pp", by=by, model=tiny, parity="off", microbatches=2, **FIXED).result(60)
    rows = run.timeline[(run.timeline["rank"] == 1) & (run.timeline["lane"] == "communication")]
    rows = rows[rows["op"].str.contains("/F/stage1$") | rows["op"].str.contains("send@pp#0")]
    waits = rows[(rows["kind"] == "wait") & ~rows["op"].str.contains("send")]
    assert set(waits["op"]) == {"m0/F/stage1", "m1/F/stage1"}
    sends = rows[rows["kind"] == "send"]
    assert set(sends["op"]) == {"m0/B/stage1/send@pp#0", "m1/B/stage1/send@pp#0"}
    assert set(waits["bytes"]) == set(sends["bytes"]) == {MESSAGE}


def test_an_order_of_ones_own_runs_by_hand_and_by_library(two, deep):
    eager = "0F0,2F0,0F1,2F1,2B0,0B0,2I1,0I1,0W1,2W1\n1F0,3F0,3B0,1F1,3F1,1B0,3I1,1I1,3W1,1W1\n"
    for by in ("hand", "library"):
        run = two.submit("pp", by=by, model=deep, parity="model", order=eager, **FIXED).result(60)
        assert run.values[0]["parity"]["ok"]
        assert list(compute(run, 0)["label"]) == eager.splitlines()[0].split(",")


def test_a_bidirectional_order_is_for_the_code_by_hand_only(two, tiny):
    order = schedule("dualpipe", 2, 4)
    run = two.submit("pp", model=tiny, order=order, **FIXED).result(60)
    assert run.values[0]["parity"]["ok"]
    with pytest.raises(ValueError, match="library has no bidirectional order"):
        two.submit("pp", by="library", model=tiny, order=order, **FIXED)


def test_copies_are_summed_once_a_stage_between_the_two_ranks_that_hold_it(four, tiny):
    run = submit(four, tiny, "dualpipe", parity="off")
    sums = run.traffic[run.traffic["collective"] == "all_reduce"]
    own = sums[sums["rank"] == 0]
    assert list(own["op"]) == ["m-1/O/stage0/all_reduce@pp#0", "m-1/O/stage7/all_reduce@pp#0"]
    # first stage: table 3 168 and a layer 5 520; last: a layer, norm 24, head 3 168
    assert list(own["payload_bytes"]) == [4 * 8_688, 4 * 8_712]
    assert list(own["wire_bytes"]) == [4 * 8_688, 4 * 8_712]


def test_split_backwards_show_in_memory_by_term(two, tiny):
    order = "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"
    run = two.submit("pp", model=tiny, parity="off", order=order, **FIXED).result(60)
    for value in run.values:
        terms = {row["term"]: row["bytes"] for row in value["memory"]["terms"]}
        assert sum(terms.values()) == value["memory"]["peak_bytes"]
        assert terms["activations"] > 0
        assert terms["gradients"] > 0
        assert value["memory"]["instant"].split(" ")[0] in {"F", "I", "W", "O"}


def test_a_rank_holds_its_stages_and_the_terms_add_up(two, tiny):
    run = two.submit("pp", model=tiny, parity="off", **FIXED).result(60)
    held = []
    for value in run.values:
        terms = {row["term"]: row["bytes"] for row in value["memory"]["terms"]}
        assert sum(terms.values()) == value["memory"]["peak_bytes"]
        held.append(terms["parameters"])
    # table 3 168 + layer 5 520; layer 5 520 + norm 24 + head 3 168
    assert held == [4 * 8_688, 4 * 8_712]


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "dualpipe"])
@pytest.mark.parametrize("fault", ["skipped_collective", "wrong_offset"])
def test_a_planted_fault_fails_the_gate(two, tiny, fault, name):
    value = two.submit("pp", model=tiny, fault=fault, schedule=name, **FIXED).result(60).values[0]
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

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb
from playbook.predict.stages import order_of
from playbook.program.order import Run
from playbook.schedules import Action
from playbook.spec import Layout, Scenario, Workload, cluster
from playbook.strategies import plan
from playbook.strategies.pp.plan import runs
from tests import shapes

STREAM = 2 * 32 * 64
SMALL = replace(shapes.SMALL, layers=8)


def pipelined(stages, microbatches, framework="textbook", **layout):
    work = Workload(sequence=32, global_batch=microbatches, recipe="bf16")
    return Scenario(SMALL, work, Layout(pp=stages, **layout), cluster("laptop"), framework=framework)


def test_each_boundary_passes_the_residual_stream_once_each_way_a_micro_batch(scenario):
    s = scenario(pp=2, global_batch=4)
    for rank in (0, 1):
        found = pb.traffic(s, rank)
        assert found.select(collective="send").count == found.select(collective="receive").count == 4
        assert set(found.payload.tolist()) == {STREAM}
        assert found.wire_bytes == 4 * STREAM


def test_messages_are_named_after_the_stage_that_sends_or_receives(scenario):
    s = scenario(pp=2, global_batch=2)
    assert pb.traffic(s, 0).table["op"].tolist() == [
        "m0/F/stage0/send@pp#0",
        "m1/F/stage0/send@pp#0",
        "m0/B/stage0/receive@pp#0",
        "m1/B/stage0/receive@pp#0",
    ]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 12), st.data())
def test_one_f_one_b_holds_min_of_m_and_p_minus_r_micro_batches(stages, microbatches, data):
    rank = data.draw(st.integers(0, stages - 1))
    live = peak = 0
    for run in order_of(pipelined(stages, microbatches), rank):
        live += 1 if run.segment == "F" else -1
        peak = max(peak, live)
    # One stage accumulates: forward and backward in turn.
    assert peak == min(microbatches, stages - rank)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([2, 4]), st.integers(4, 9), st.sampled_from(["1f1b", "gpipe"]))
def test_the_bubble_is_p_minus_one_over_m_plus_p_minus_one(stages, microbatches, schedule):
    found = pb.schedule(schedule, stages, microbatches).simulate(forward=1, backward=2)
    assert found.idle_over_makespan == pytest.approx((stages - 1) / (microbatches + stages - 1), rel=1e-12)


def test_the_peak_is_k_minus_one_times_the_saved_plus_one_micro_batchs_peak():
    one = pb.program(pipelined(4, 1), 0).memory()
    many = pb.program(pipelined(4, 8), 0).memory()
    saved = 2 * layer_saved_bytes()
    assert many.peak_bytes == one.peak_bytes + 3 * saved


def layer_saved_bytes():
    """Bytes one layer keeps in BF16 with flash attention, 32 tokens, counted by hand."""
    tokens, hidden, query, key, feed, heads = 32, 64, 64, 32, 96, 4
    attention = 2 * hidden + 2 * hidden + 2 * query + 2 * 2 * key + 4 * heads + 2 * query
    return tokens * (attention + 2 * hidden + 2 * hidden + 3 * 2 * feed)


def test_pytorch_keeps_a_stages_input_and_output_until_backward():
    program = pb.program(pipelined(2, 2, "torch", schedule="gpipe"), 0)
    held = [t for t in program.templates if t.name == "output"]
    assert [t.bwd_end is not None for t in held] == [True]


def test_actions_become_runs_one_after_the_other_overlapped_ones_too():
    order = [Action(0, "F", 0), Action(1, "I", 0), Action(0, "F", 1), Action(1, "B", 1, beside=True)]
    assert runs([*order, Action(1, "W", 0)]) == (
        Run("F", 0, 0),
        Run("I", 1, 0),
        Run("F", 0, 1),
        Run("B", 1, 1),
        Run("W", 1, 0),
    )


def test_a_run_that_names_no_model_has_layers_for_all_stages_equally():
    # toy-15m has 6 layers: they fill 1, 2, 3 and 6 stages; 4 stages need 8, and so do the 8 of four V's
    layers = {ranks: plan("pp").scenario(ranks).model.layers for ranks in (2, 3, 4, 6)}
    assert layers == {2: 6, 3: 6, 4: 8, 6: 6}
    assert plan("pp").scenario(4, schedule="zbv").model.layers == 8
    assert plan("pp").scenario(2, stage_layers=(3, 2)).model.layers == 5
    assert plan("pp").scenario(2).model.name == "toy-15m"

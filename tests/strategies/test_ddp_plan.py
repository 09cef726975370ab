import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb
from playbook.spec import Layout, Model, Scenario, Workload, cluster
from playbook.spec.recipe import RECIPES
from playbook.strategies import plan

LAYER, ROOT = 30_848, 16_448
PSI = 4 * LAYER + ROOT


def test_the_counts_of_these_tests_are_those_of_the_model(small):
    assert (small.layer_parameters, small.parameters) == (LAYER, PSI)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(name for name, one in RECIPES.items() if one.uniform and not one.adapters)),
    st.integers(1, 64),
    st.integers(1, 5),
    st.sampled_from([8, 16, 40]),
)
def test_every_replica_holds_the_recipes_bytes_a_parameter(recipe, ranks, layers, hidden):
    model = Model(
        name="drawn",
        family="llama",
        layers=layers,
        hidden=hidden,
        heads=4,
        kv_heads=2,
        head_dim=6,
        ffn=50,
        vocabulary=70,
        max_sequence=64,
    )
    s = Scenario(model, Workload(sequence=8, recipe=recipe), Layout(dp=ranks), cluster("laptop"))
    bytes_each = {"fp32": 16, "bf16-fp32master": 16, "bf16-fp32grad": 18, "fsdp2-mixed": 16, "bf16": 8}
    bytes_each |= {"fp32-bf16states": 12, "sgd": 8}
    assert sum(pb.program(s).memory().state.values()) == bytes_each[recipe] * model.parameters


@pytest.mark.parametrize("ranks", [2, 4, 7, 64])
def test_a_ring_all_reduce_sends_two_n_minus_one_over_n_of_the_gradients(scenario, ranks):
    found = pb.traffic(scenario(dp=ranks, recipe="fp32"))
    assert found.payload_bytes == 4 * PSI
    assert found.wire_bytes == pytest.approx(2 * (ranks - 1) / ranks * 4 * PSI, rel=1e-12)


def test_units_are_reduced_from_the_last_layer_to_the_root(scenario):
    ops = pb.traffic(scenario(dp=2)).table["op"].tolist()
    assert ops == [f"m0/B/layers.{n}/all_reduce@dp#0" for n in (3, 2, 1, 0)] + ["m0/B//all_reduce@dp#0"]


def test_reduction_after_the_last_micro_batch_sends_once(scenario):
    every = pb.traffic(scenario(dp=2, global_batch=6))
    last = pb.traffic(scenario(dp=2, global_batch=6, gradient_sync="last"))
    assert every.payload_bytes == 3 * last.payload_bytes
    assert {op[:2] for op in last.table["op"]} == {"m2"}


def test_one_rank_sends_nothing(scenario):
    assert pb.traffic(scenario(dp=1)).count == 0


def test_pytorch_fills_buckets_of_25_mib_after_a_first_one_of_1_mib():
    found = pb.traffic(plan("ddp").scenario(2))
    # head 12 582 912; norm, four layers of 6 294 528 and one down projection; the rest down to the table.
    assert found.table["op"].tolist() == [f"m0/B/bucket{n}/all_reduce@dp#0" for n in range(3)]
    assert found.payload.tolist() == [12_582_912, 26_752_512, 23_599_104]
    assert found.payload_bytes == 4 * pb.model("toy-15m").parameters


def test_pytorchs_gradients_appear_in_backward_and_go_after_the_step():
    walk = pb.program(plan("ddp").scenario(2)).memory()
    psi = pb.model("toy-15m").parameters
    assert walk.state == {"parameters": 4 * psi, "optimizer": 8 * psi, "communication_buffers": 4 * psi}
    assert walk.levels[-1][walk.term_names.index("gradients")] == 4 * psi
    assert walk.levels[0][walk.term_names.index("gradients")] == 0


def test_mixed_precision_of_fsdp2_is_refused_where_pytorch_replicates(scenario):
    with pytest.raises(ValueError, match="use zero=3, or recipe='fp32' or 'bf16'"):
        pb.program(scenario("torch", dp=2, recipe="fsdp2-mixed"))

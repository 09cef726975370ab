"""Experts of Mixtral and Qwen3-MoE against what Hugging Face's code runs and keeps.

Expected rows and bytes were recorded from that code on CPU: transformers 5.24, torch 2.13, BF16, experts by
grouped products, hidden 48, 6 query and 2 key heads of 8, 4 experts of 40 features, 2 a token, 2 sequences of
32 tokens. Bytes are those of `saved_tensors_hooks`, two layers less one.
"""

from dataclasses import replace

import pytest

import playbook as pb
from playbook.frameworks import policy
from playbook.program.polynomial import constant
from playbook.program.sizes import Sizes
from playbook.spec import Layout, Model, Moe, Scenario, Workload, model, recipe, smallest_cluster

ROUTER = "mm _to_copy _softmax topk sum clone div_"
DISPATCH = "sort floor_divide index index _to_copy histc cumsum"
PRODUCTS = "_grouped_mm silu mul _grouped_mm mul empty_like arange index_put_ index sum"
PRODUCTS_BACK = "_grouped_mm _grouped_mm mul mul silu_backward cat _grouped_mm _grouped_mm"
ORDER_BACK = "new_zeros index_put new_zeros index_put"
ROUTER_BACK = "div div neg mul div sum add new_zeros scatter _softmax_backward_data _to_copy mm mm add"
QWEN = {
    "F": f"{ROUTER} _to_copy {DISPATCH} {PRODUCTS}",
    "B": f"clone new_zeros index_put mul mul sum {PRODUCTS_BACK} {ORDER_BACK} _to_copy {ROUTER_BACK}",
}
MIXTRAL = {
    "F": f"{ROUTER} {DISPATCH} {PRODUCTS} _to_copy",
    "B": f"_to_copy clone new_zeros index_put mul mul _to_copy sum {PRODUCTS_BACK} {ORDER_BACK} "
    f"{ROUTER_BACK}",
}


def mixture(family):
    return Model(
        name="mixture",
        family=family,
        layers=2,
        hidden=48,
        heads=6,
        kv_heads=2,
        head_dim=8,
        ffn=96,
        vocabulary=128,
        max_sequence=64,
        qk_norm=family == "qwen3_moe",
        moe=Moe(experts=4, active=2, ffn=40),
    )


def layer_of(family, symbolic=False, numeric="fsdp2-mixed"):
    work = Workload(sequence=32, micro_batch=2)
    return policy("transformers").layer(Sizes.of(mixture(family), work, recipe(numeric), symbolic))


@pytest.mark.parametrize(("family", "expected"), [("mixtral", 139_536), ("qwen3_moe", 165_904)])
def test_a_layer_keeps_what_hugging_face_keeps_to_the_byte(family, expected):
    assert sum(tensor.bytes for tensor in layer_of(family).tensors if tensor.saved) == expected


@pytest.mark.parametrize(("family", "expected"), [("mixtral", MIXTRAL), ("qwen3_moe", QWEN)])
@pytest.mark.parametrize("letter", ["F", "B"])
def test_rows_are_the_operations_that_hugging_face_runs_in_order(family, expected, letter):
    rows = [row.op for row in layer_of(family).segment(letter) if row.owner.startswith("mlp")]
    assert rows == expected[letter].split()


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_gradients_of_experts_are_whole_when_their_grouped_product_has_run(family):
    ready = {weight.name: weight.ready.row for weight in layer_of(family).weights}
    assert ready["mlp.experts.gate_proj"] == ready["mlp.experts.up_proj"] == "mlp.experts/_grouped_mm#2"
    assert ready["mlp.experts.down_proj"] == "mlp.experts/_grouped_mm#0"
    assert ready["mlp.gate.weight"] == "mlp.gate/mm#0"


def test_flops_are_three_products_of_the_routed_tokens_and_the_routers():
    rows = [row for row in layer_of("mixtral").forward if row.owner.startswith("mlp")]
    assert sum(row.flops for row in rows) == 3 * 2 * 128 * 48 * 40 + 2 * 64 * 48 * 4


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_symbols_give_the_bytes_of_numbers(family):
    values = {"b": 2, "s": 32, "h": 48, "a": 6, "g": 2, "k": 8, "f": 96, "E": 4, "K": 2, "e": 40}
    numbers, symbols = layer_of(family), layer_of(family, symbolic=True)
    assert [t.bytes for t in numbers.tensors] == [constant(t.bytes).at(values) for t in symbols.tensors]


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("family", "numeric"), [("mixtral", "fp32"), ("qwen3_moe", "fsdp2-mixed")])
def test_a_step_leaves_nothing_but_state_behind(family, numeric, recompute):
    s = scenario(mixture(family), recipe=numeric, recompute=recompute)
    program = pb.program(s)
    assert (program.held.birth <= program.held.death).all()
    assert program.memory().left_after(len(program) - 1) == sum(program.memory().state.values())


@pytest.mark.parametrize(("family", "measured"), [("qwen3_moe", 67_756_616), ("mixtral", 69_296_712)])
def test_the_peak_of_a_backward_is_what_the_allocator_saw(family, measured):
    """Two layers in BF16, 8 experts of 512 features, 4 a token, 1024 tokens, on CPU from allocation events.

    Single numbers of the loss, 8 bytes, are not counted.
    """
    sizes = {"hidden": 256, "heads": 4, "head_dim": 64, "max_sequence": 1024}
    shape = replace(mixture(family), **sizes, moe=Moe(experts=8, active=4, ffn=512))
    work = Workload(sequence=512, micro_batch=2, recipe="bf16")
    walk = pb.training_memory(Scenario(shape, work, framework="transformers")).walk
    assert walk.peak_bytes - sum(walk.state.values()) == measured - 8


def scenario(shape, **work):
    given = {"sequence": 32, "micro_batch": 2, "global_batch": 8, "recipe": "fsdp2-mixed", **work}
    layout = Layout(dp=2, zero=3)
    return Scenario(shape, Workload(**given), layout, smallest_cluster(2), framework="transformers")


def test_fewer_experts_than_ranks_are_padded_to_one_a_rank():
    """FSDP2 cuts dim 0, the experts: 8 of Mixtral among 64 ranks take the buffers of 64."""
    eight, many = (
        Scenario(
            model("mixtral-8x7b"),
            Workload(sequence=1024, micro_batch=1, recipe="fsdp2-mixed", recompute="full"),
            Layout(dp=ranks, zero=3),
            smallest_cluster(ranks),
            framework="transformers",
        )
        for ranks in (8, 64)
    )
    assert (
        pb.program(many).memory().state["parameters"] > 0.9 * pb.program(eight).memory().state["parameters"]
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"moe": Moe(experts=4, active=2, ffn=40, shared_ffn=40)}, "routed experts"),
        ({"family": "deepseek_v3"}, "routed experts"),
        ({"family": "phi3", "moe": None}, "fused projections"),
    ],
)
def test_other_experts_and_fused_projections_are_refused_by_name(changes, words):
    """Phi-3 keeps queries and keys before rotation too, since its values are a part of one product."""
    with pytest.raises(ValueError, match=f"{words}.*use.*Qwen3-MoE, or framework='textbook'"):
        pb.training_memory(scenario(replace(mixture("mixtral"), **changes)))

import pytest

import playbook as pb
from playbook.frameworks.textbook import POLICY
from playbook.program.adapters import adapt
from playbook.program.policy import Sizes
from playbook.spec import Lora, Workload, model, recipe

T, H, KV, F, R = 128, 2048, 512, 8192, 8


def layer(*targets, name="lora"):
    sizes = Sizes.of(model("llama-3.2-1b"), Workload(sequence=T), recipe(name))
    (found,) = adapt((POLICY.layer(sizes),), Lora(rank=R, targets=targets), recipe(name), sizes.T)
    return found


def saved(block):
    return {tensor.name: tensor for tensor in block.tensors if tensor.saved}


def test_weights_are_frozen_and_adapters_are_two_thin_matrices():
    block = layer("q_proj", "v_proj")
    trained = {weight.name: weight.shape for weight in block.weights if not weight.frozen}
    assert trained == {
        "self_attn.q_proj.lora_A.weight": (R, H),
        "self_attn.q_proj.lora_B.weight": (H, R),
        "self_attn.v_proj.lora_A.weight": (R, H),
        "self_attn.v_proj.lora_B.weight": (KV, R),
    }
    assert sum(weight.frozen for weight in block.weights) == 9


def test_only_adapters_make_gradients_of_weights():
    for_weights = [op.name for op in layer("q_proj").backward if op.for_weights]
    assert for_weights == ["self_attn.q_proj.lora_B/mm#1", "self_attn.q_proj.lora_A/mm#1"]


def test_inputs_of_frozen_products_are_not_kept():
    kept = saved(layer("q_proj"))
    assert "activation" not in kept
    assert "norm output 2" not in kept
    # What the function between and the core need stays, and what the adapter multiplies.
    assert {"gate", "up", "q", "k", "v", "attention output", "middle", "input", "norm output"} <= set(kept)
    assert kept["norm output"].bwd_end.row == "self_attn.q_proj.lora_A/mm#1"
    assert kept["self_attn.q_proj adapter"].bytes == 2 * T * R


def test_the_input_is_kept_until_the_last_adapter_that_reads_it():
    assert saved(layer("q_proj", "k_proj"))["norm output"].bwd_end.row == "self_attn.q_proj.lora_A/mm#1"
    assert saved(layer("v_proj"))["norm output"].bwd_end.row == "self_attn.v_proj.lora_A/mm#1"
    assert "norm output" not in saved(layer("down_proj"))
    assert "activation" in saved(layer("down_proj"))


def test_quantised_weights_are_widened_one_at_a_time():
    wide = [tensor for tensor in layer("q_proj", name="qlora").tensors if "widened" in tensor.name]
    assert len(wide) == 2 * 7
    assert {tensor.birth == (tensor.fwd_end or tensor.bwd_end) for tensor in wide} == {True}
    assert max(tensor.bytes for tensor in wide) == 2 * F * H
    assert not [tensor for tensor in layer("q_proj").tensors if "widened" in tensor.name]


def test_products_of_an_adapter_cost_rank_times_both_widths():
    block = layer("v_proj")
    flops = {op.owner: op.flops for op in block.forward if "lora" in op.owner}
    assert flops == {
        "self_attn.v_proj.lora_A": 2 * T * H * R,
        "self_attn.v_proj.lora_B": 2 * T * KV * R,
    }


@pytest.mark.parametrize(
    ("layout", "part"),
    [({}, 1), ({"dp": 4, "zero": 3}, 4), ({"tp": 4}, 1), ({"pp": 4, "schedule": "zb-h1"}, 1)],
    ids=["one", "zero 3", "tp", "split backward"],
)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_adapters_go_with_every_pass(layout, part, recompute):
    work = pb.Workload(sequence=T, recipe="lora", recompute=recompute)
    found = pb.training_memory(pb.Scenario(pb.model("llama-3.2-1b"), work, pb.Layout(**layout)))
    terms = {row["term"]: row["bytes"] for row in found.terms}
    adapters = pb.adapters(pb.model("llama-3.2-1b"), work.lora).trainable
    if part == 1 and not layout:
        assert terms["optimizer"] == 8 * adapters
        assert terms["gradients"] == 2 * adapters
        assert terms["parameters"] == 2 * (pb.model("llama-3.2-1b").parameters + adapters)
    assert terms["optimizer"] <= 8 * adapters


def test_tensor_parallelism_splits_the_side_of_an_adapter_that_it_splits_of_the_projection():
    def optimizer(tp):
        work = pb.Workload(sequence=T, recipe="lora", lora=Lora(rank=R, targets=("q_proj", "o_proj")))
        s = pb.Scenario(pb.model("llama-3.2-1b"), work, pb.Layout(tp=tp))
        return pb.program(s).memory().terms["optimizer"] // (8 * 16 * R)

    assert optimizer(1) == (H + H) + (H + H)
    # q: A whole, B in rows; o: A in columns, B whole.
    assert optimizer(4) == (H + H // 4) + (H // 4 + H)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_only_gradients_of_adapters_are_reduced(zero):
    work = pb.Workload(sequence=T, recipe="lora", lora=Lora(rank=R))
    s = pb.Scenario(pb.model("llama-3.2-1b"), work, pb.Layout(dp=4, zero=zero))
    table = pb.traffic(s).table
    reduced = table[table["collective"].isin(["all_reduce", "reduce_scatter"]) & (table["axis"] == "dp")]
    assert (
        int((reduced["count"] * reduced["payload_bytes"]).sum())
        == 2 * pb.adapters(s.model, work.lora).trainable
    )

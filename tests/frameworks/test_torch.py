import pytest

import playbook as pb
from playbook.frameworks.torch import POLICY
from playbook.program.policy import Sizes
from playbook.spec import Layout, Model, Parameter, Scenario, Workload, recipe

T = 2 * 64
"""Tokens of the micro-batch that the tests here count."""


def small(**changes) -> Model:
    sizes = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 48, "vocabulary": 64}
    return Model(name="small", family="llama", max_sequence=64, **{**sizes, **changes})


def sizes(name: str = "fp32", **changes) -> Sizes:
    return Sizes.of(small(**changes), Workload(sequence=64, micro_batch=2, kernels="cpu"), recipe(name))


def scenario(model=None, layout=None, **work) -> Scenario:
    given = {"sequence": 64, "micro_batch": 2, "recipe": "fp32", "kernels": "cpu", **work}
    return Scenario(model or small(), Workload(**given), layout or Layout(), framework="torch")


def saved_bytes(z: Sizes) -> int:
    return sum(tensor.bytes for tensor in POLICY.layer(z).tensors if tensor.saved)


def test_a_layer_in_fp32_saves_what_autograd_saves():
    # Each norm: scale 4, normalised 4h, output 4h; both residual sums 4h each; q, o 4ak; k, v 4gk;
    # log-sum-exp 4a; gate, its SiLU, up and their product 4f each. With h 32, ak 32, gk 16, f 48, a 4:
    per_token = 2 * (4 + 8 * 32) + 2 * 4 * 32 + 2 * 4 * 32 + 2 * 4 * 16 + 4 * 4 + 4 * 4 * 48
    assert saved_bytes(sizes("fp32")) == T * per_token


def test_a_layer_in_bf16_saves_wide_norm_inputs_and_no_residual_sum():
    # 16h + 4ak + 4gk + 8f + 4a + 8 bytes a token, as measured for Hugging Face's Llama in BF16.
    per_token = 16 * 32 + 4 * 32 + 4 * 16 + 8 * 48 + 4 * 4 + 8
    assert saved_bytes(sizes("bf16")) == T * per_token


def test_a_layer_runs_the_operations_of_the_reference_transformer():
    rows = [op.name for op in POLICY.layer(sizes()).forward]
    assert rows[:6] == [
        f"input_layernorm/{op}" for op in ("pow#0", "mean#0", "add#0", "rsqrt#0", "mul#0", "mul#1")
    ]
    assert rows[6:9] == [f"self_attn.{x}_proj/mm#0" for x in "qkv"]
    assert rows[-1] == "/add#1"
    assert len(rows) == 34


def test_half_precision_adds_the_casts_of_the_norms():
    half, full = (POLICY.layer(sizes(name)) for name in ("bf16", "fp32"))
    assert len(half.forward) == len(full.forward) + 4
    assert sum(op.op == "_to_copy" for op in half.backward) == 4


def test_a_bias_turns_the_product_into_one_with_a_sum_and_its_gradient_into_a_sum():
    block = POLICY.layer(sizes(qkv_bias=True))
    assert [op.op for op in block.forward if op.owner == "self_attn.q_proj"] == ["addmm"]
    assert [op.op for op in block.backward if op.owner == "self_attn.v_proj"] == ["mm", "mm", "sum"]
    assert "self_attn.q_proj.bias" in [weight.name for weight in block.weights]


def test_norms_of_heads_have_rows_of_their_own():
    rows = [op for op in POLICY.layer(sizes(qk_norm=True)).forward if op.owner == "self_attn.k_norm"]
    assert [op.op for op in rows] == ["pow", "mean", "add", "rsqrt", "mul", "mul"]


def test_every_parameter_has_a_row_that_completes_its_gradient():
    z = sizes(qkv_bias=True, output_bias=True, mlp_bias=True, qk_norm=True)
    expected = [parameter.name for parameter in z.layer_parameters]
    assert [weight.name for weight in POLICY.layer(z).weights] == expected
    assert all(isinstance(parameter, Parameter) for parameter in z.layer_parameters)


def test_a_tied_table_gets_its_gradient_from_both_ends():
    block = POLICY.embedding(sizes(tied=True))
    assert [op.name for op in block.backward] == [
        "embed_tokens/embedding_dense_backward#0",
        "embed_tokens/add#0",
    ]
    assert block.weights[0].ready.row == "embed_tokens/add#0"


def test_flops_of_a_step_are_six_a_parameter_and_token_and_the_attention():
    s = scenario()
    rows = pb.program(s).rows
    layer = 32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48
    attention = 4 * 2 * 64 * 64 * 32  # two products of b·s·s·a·k multiply-adds, 2 FLOPs each
    # Backward of flash attention: 2.5 times its forward.
    assert rows.flops.sum() == 6 * T * (2 * layer + 32 * 64) + 2 * 3.5 * attention


def test_ddp_fills_its_buckets_in_the_order_of_the_gradients():
    s = Scenario(
        pb.model("toy-15m"),
        Workload(sequence=64, recipe="fp32", kernels="cpu"),
        Layout(dp=4),
        framework="torch",
    )
    traffic = pb.program(s).traffic()
    # The head alone passes 1 MiB: 8192 · 384 · 4. Then the last norm, four layers of 1 573 632 parameters and
    # one down projection pass 25 MiB. The rest is the third.
    head, second = 8192 * 384 * 4, 4 * (384 + 4 * 1_573_632 + 384 * 1024)
    assert traffic.payload.tolist() == [head, second, 4 * 15_733_632 - head - second]


@pytest.mark.parametrize(
    ("model", "layout", "work", "words"),
    [
        (small(norm="layer"), None, {}, "use a dense kind of Llama, Mistral or Qwen"),
        (small(gated=False), None, {}, "feed-forward part without gate"),
        (None, None, {"recipe": "bf16-fp32grad"}, "use one of bf16-fp32master, fp32, bf16, fsdp2-mixed, sgd"),
        (None, None, {"recipe": "fsdp2-mixed"}, "use zero=3"),
    ],
)
def test_what_torch_does_not_do_is_refused_with_what_would_work(model, layout, work, words):
    with pytest.raises(ValueError, match=words):
        pb.program(scenario(model, layout, **work))

"""Latent attention against bytes worked out by hand."""

import pytest

from playbook.frameworks.textbook import POLICY
from playbook.program.policy import Context
from playbook.program.polynomial import constant
from playbook.program.sizes import Sizes
from playbook.spec import Mla, Model, Workload, recipe
from playbook.strategies import plan

T, H, A, FFN = 64, 32, 4, 48
RKV, DN, DR, DV = 24, 8, 4, 6


def latent(query_rank=None):
    return Model(
        name="latent",
        family="deepseek_v3",
        layers=1,
        hidden=H,
        heads=A,
        kv_heads=A,
        head_dim=DN + DR,
        ffn=FFN,
        vocabulary=64,
        max_sequence=64,
        mla=Mla(query_rank=query_rank, kv_rank=RKV, nope_dim=DN, rope_dim=DR, value_dim=DV),
    )


def layer_of(model, symbolic=False, attention="flash"):
    work = Workload(sequence=32, micro_batch=2, attention=attention)
    return POLICY.layer(Sizes.of(model, work, recipe("bf16-fp32master"), symbolic))


def split(model, tp, sequence_parallel=False):
    ctx = Context(
        policy=POLICY,
        recipe=recipe("bf16-fp32master"),
        tp=tp,
        kv_heads=model.kv_heads,
        sequence_parallel=sequence_parallel,
    )
    return plan("tp").rewrite((layer_of(model),), ctx)[0]


def kept(block):
    return sum(tensor.bytes for tensor in block.tensors if tensor.saved)


STREAM = 2 * 4 * T * H + 3 * 2 * T * FFN
"""Input, two norm outputs and the middle; the feed-forward part."""


def heads(t=1):
    """Bytes per rank of what stands by head: q, k, v and the core's output in BF16, log-sum-exps in FP32."""
    return (2 * T * A * (2 * (DN + DR) + DV) + 2 * T * A * DV + 4 * T * A) // t


@pytest.mark.parametrize("rank", [None, 16])
def test_a_layer_keeps_latents_the_rotary_key_and_whole_heads(rank):
    """B·T·(rq + rkv + dr + a·(2(dn + dr) + dv)), and the core's output."""
    assert kept(layer_of(latent(rank))) == STREAM + 2 * T * ((rank or 0) + RKV + DR) + heads()


def test_tensor_parallelism_divides_heads_and_leaves_latents_whole():
    expected = 2 * 4 * T * H + 3 * 2 * T * FFN // 2 + 2 * T * (16 + RKV + DR) + heads(2)
    assert kept(split(latent(16), 2)) == expected


def test_sequence_parallelism_divides_latents_too():
    assert kept(split(latent(16), 2, sequence_parallel=True)) * 2 == kept(layer_of(latent(16)))


def test_squeezing_products_are_whole_on_every_rank():
    shapes = {weight.name: weight.shape for weight in split(latent(16), 2).weights}
    assert shapes["self_attn.q_a_proj.weight"] == (16, H)
    assert shapes["self_attn.kv_a_proj_with_mqa.weight"] == (RKV + DR, H)
    assert shapes["self_attn.q_b_proj.weight"] == (A * (DN + DR) // 2, 16)
    assert shapes["self_attn.kv_b_proj.weight"] == (A * (DN + DV) // 2, RKV)
    assert shapes["self_attn.o_proj.weight"] == (H, A * DV // 2)


def test_gradients_of_latents_are_added_up_over_tp_and_not_that_of_the_input():
    """Backward: latent queries 2·T·rq, latent keys and values 2·T·(rkv + dr), feed-forward input 2·T·h."""
    sent = sorted(row.payload for row in split(latent(16), 2).backward if row.axis == "tp")
    assert sent == sorted([2 * T * 16, 2 * T * (RKV + DR), 2 * T * H])


@pytest.mark.parametrize(("rank", "squeeze"), [(None, 0), (16, 16)])
def test_flops_are_those_of_the_products_and_of_unequal_heads(rank, squeeze):
    """2·T a weight; the core 2·b·s²·a·(dn + dr) for scores and 2·b·s²·a·dv for values."""
    query = H * A * (DN + DR) if rank is None else squeeze * (H + A * (DN + DR))
    weights = query + H * (RKV + DR) + RKV * A * (DN + DV) + A * DV * H + 3 * H * FFN
    core = 2 * 2 * 32 * 32 * A * (DN + DR + DV)
    assert sum(row.flops for row in layer_of(latent(rank)).forward) == 2 * T * weights + core


def test_backward_of_flash_attention_takes_five_halves_of_its_forward():
    (row,) = [row for row in layer_of(latent()).backward if row.op == "sdpa_backward"]
    assert row.flops == 5 * 2 * 32 * 32 * A * (DN + DR + DV)


@pytest.mark.parametrize("rank", [None, 16])
def test_symbols_give_the_bytes_and_flops_of_numbers(rank):
    values = {"b": 2, "s": 32, "h": H, "a": A, "g": A, "k": DN + DR, "f": FFN, "rq": rank or 0}
    values |= {"rkv": RKV, "dn": DN, "dr": DR, "dv": DV}
    numbers, symbols = layer_of(latent(rank)), layer_of(latent(rank), symbolic=True)
    assert [t.bytes for t in numbers.tensors] == [constant(t.bytes).at(values) for t in symbols.tensors]
    assert [w.numel for w in numbers.weights] == [constant(w.numel).at(values) for w in symbols.weights]
    assert [r.flops for r in numbers.forward] == [constant(r.flops).at(values) for r in symbols.forward]

"""torchtitan's accounting: op-by-op checkpointing, the loss on split logits, refusals."""

import pytest

import playbook as pb
from playbook.predict.stages import blocks_of, context

B, S, H, F, KV, A = 2, 8192, 4096, 14336, 1024, 32


def scenario(recipe="fsdp2-mixed", recompute="none", sequence=S, batch=B, **layout):
    work = pb.Workload(sequence=sequence, micro_batch=batch, recipe=recipe, recompute=recompute)
    return pb.Scenario(pb.model("llama-3.1-8b"), work, pb.Layout(**layout), framework="torchtitan")


def kept(s):
    layer = blocks_of(s, 0, context(s))[1]
    return {t.name: t.bytes for t in layer.tensors if t.saved and t.birth.segment == "F"}


def test_selective_checkpointing_keeps_input_attention_and_every_second_product():
    # Bytes a token: input 2·h, q 2·h, v 2·kv, attention's output 2·h with 4 bytes a head, gate 2·f, the
    # output of down 2·h.
    found = kept(scenario(recompute="selective", dp=8, zero=3))
    assert set(found) == {"input", "q plain", "v", "o", "log-sum-exp", "gate", "fed"}
    assert sum(found.values()) == B * S * (8 * H + 2 * KV + 4 * A + 2 * F)


def test_what_is_not_kept_runs_again_and_what_is_does_not():
    s = scenario(recompute="selective", dp=8, zero=3)
    again = [op.name for op in blocks_of(s, 0, context(s))[1].backward if op.phase == "R"]
    assert "R:self_attn.k_proj/mm#0" in again
    assert "R:mlp.up_proj/mm#0" in again
    made = ("self_attn.q_proj/mm#0", "self_attn.v_proj/mm#0", "self_attn/sdpa#0", "mlp.gate_proj/mm#0")
    assert not {f"R:{name}" for name in made} & set(again)


def test_selective_lies_between_none_and_full():
    peaks = [
        pb.training_memory(scenario(recompute=mode, dp=8, zero=3)).peak_bytes
        for mode in ("full", "selective", "none")
    ]
    assert peaks == sorted(peaks)
    assert peaks[0] < peaks[1] < peaks[2]


def test_the_loss_holds_a_share_of_the_logits():
    s = scenario(recompute="full", dp=2, tp=8, zero=3, sequence_parallel=True, batch=1, sequence=4096)
    head = blocks_of(s, 0, context(s))[-1]
    logits = {t.name: t.bytes for t in head.tensors if t.term == "logits"}
    assert logits["wide"] == 4 * 4096 * 128256 // 8
    assert not [
        op for op in head.forward if op.op == "all_gather" and op.axis == "tp" and op.owner == "lm_head"
    ][1:]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dp": 2, "zero": 1}, "zero=1.*use zero=3"),
        ({"dp": 2, "zero": 3, "recipe": "bf16-fp32grad"}, "recipe='bf16-fp32grad'.*use recipe='fsdp2-mixed'"),
        ({"dp": 2, "zero": 0}, "recipe='fsdp2-mixed' with zero=0"),
    ],
)
def test_what_torchtitan_does_not_do_is_refused_with_what_works(given, words):
    with pytest.raises(ValueError, match=words):
        pb.training_memory(scenario(**given))


def test_a_card_of_96_gb_has_what_its_driver_reports():
    assert pb.cluster("1x8-h100-96").gpu.memory_bytes == 97871 * 2**20

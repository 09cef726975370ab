"""What is said beside a memory picture; numbers by hand."""

import pytest

import playbook as pb
from playbook.pictures.memory_warnings import warnings
from playbook.predict import zero_states
from playbook.units import THIN


def told(model="llama-3.1-70b", *, framework="torch", workload=None, **layout) -> str:
    made = pb.Scenario(pb.model(model), workload or pb.Workload(), pb.Layout(**layout), framework=framework)
    states = zero_states(made.model, made.recipe, made.layout.shard_ranks)
    return " ".join(warnings(pb.training_memory(made), states)).replace(THIN, " ")


def test_logits_of_a_small_model_with_a_large_vocabulary_are_named():
    # 16 384 tokens x 128 256 x (4 + 4 + 4) B = 25.2 GB beside 20 GB of state
    text = told("llama-3.2-1b", workload=pb.Workload(micro_batch=4, recompute="full"), dp=1)
    assert "Logits and the copies that the loss makes" in text
    assert "16 384 tokens x 128 256 words" in text


def test_activations_that_do_not_shard_are_named_with_what_lowers_them():
    text = told("llama-3.1-8b", workload=pb.Workload(sequence=8192), dp=64, zero=3)
    assert "do not shard: each of 64 ranks has its own tokens" in text
    assert "recompute, a smaller micro-batch" in text


def test_gathered_layers_above_the_state_are_named():
    text = told("llama-3.1-70b", workload=pb.Workload(recompute="full"), dp=512, zero=3)
    assert "more ranks will not lower this peak" in text


@pytest.mark.parametrize(
    ("zero", "ranks", "shrinks", "limit"),
    # 16/(4 + 12/8) = 2.9, 16/4; 16/(2 + 14/8) = 4.3, 16/2; 16/(2 + 14/64) = 7.2
    [(1, 8, "2.9 ×", "4 × at most"), (2, 8, "4.3 ×", "8 × at most"), (2, 64, "7.2 ×", "8 × at most")],
)
def test_a_claim_of_a_factor_becomes_what_it_is_at_this_number_of_ranks(zero, ranks, shrinks, limit):
    text = told("llama-3.1-8b", framework="textbook", dp=ranks, zero=zero)
    assert shrinks in text
    assert limit in text


def test_selective_recomputation_beside_flash_attention_is_said_to_save_next_to_nothing():
    work = pb.Workload(recompute="selective")
    assert "flash attention keeps none" in told("llama-3.1-8b", framework="textbook", workload=work, dp=8)


def test_a_plain_small_step_needs_no_words():
    work = pb.Workload(sequence=16, micro_batch=1, recompute="full")
    assert told("llama-2-7b", framework="textbook", workload=work, dp=1) == ""


def test_math_attention_is_named_among_what_keeps_activations():
    work = pb.Workload(attention="math")
    assert "What lowers them: flash attention, recompute" in told("llama-3.1-8b", workload=work, dp=8, zero=3)


def test_a_backward_in_two_parts_is_said_to_keep_what_is_computed_again():
    work = pb.Workload(recompute="full", gradient_sync="last", global_batch=4)
    split = told("toy-15m", framework="textbook", workload=work, pp=2, schedule="zb-h1")
    assert "ZB-H1 runs backward in two parts" in split
    whole = told("toy-15m", framework="textbook", workload=work, pp=2, schedule="gpipe")
    assert "two parts" not in whole

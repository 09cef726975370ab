import pytest

import playbook as pb

MODEL = pb.model("llama-3.1-8b")
T, V, H = 8192, 128_256, 4096


def memory(**work):
    return pb.program(pb.Scenario(MODEL, pb.Workload(sequence=T, **work))).memory()


def head(**work):
    program = pb.program(pb.Scenario(MODEL, pb.Workload(sequence=T, **work)))
    return {t.name: t.bytes for t in program.templates if t.term in ("logits", "gradients", "activations")}


@pytest.mark.parametrize("rows", [1024, 2048])
def test_only_a_piece_of_the_logits_is_there_at_a_time(rows):
    assert head()["logits"] == 4 * T * V
    assert head(loss="chunked", loss_chunk=rows)["logits"] == 4 * rows * V


def test_a_piece_is_never_longer_than_the_micro_batch():
    assert head(loss="chunked", loss_chunk=10 * T)["logits"] == 4 * T * V


def test_the_gradients_of_hidden_states_and_of_the_head_wait_for_backward():
    kept = head(loss="chunked")
    assert kept["gradient of norm output"] == 2 * T * H
    assert kept["summed gradient of head"] == 4 * V * H


def test_frozen_weights_need_no_gradient_of_the_head():
    assert "summed gradient of head" not in head(loss="chunked", recipe="lora")


def test_long_sequences_gain_more_than_the_summed_gradient_costs():
    # 4·T·V of logits against 4·1024·V and 4·V·h: worth it from T = 1024 + h on.
    eager, pieces = memory(), memory(loss="chunked")
    assert eager.peak_bytes - pieces.peak_bytes == 4 * V * (T - 1024 - H) - 2 * T * H


def test_tensor_parallelism_divides_the_piece():
    s = pb.Scenario(MODEL, pb.Workload(sequence=T, loss="chunked"), pb.Layout(tp=8))
    terms = pb.program(s).memory().terms
    assert terms["logits"] == 4 * 1024 * V // 8

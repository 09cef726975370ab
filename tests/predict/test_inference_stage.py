import playbook as pb
from playbook.predict.inference_stage import buffer_bytes, chunk_of, stage_of
from playbook.predict.prefill_peak import Chunk
from playbook.spec import gpu

LLAMA = pb.model("llama-3.1-8b")
MIB = 2**20


def test_a_step_takes_no_more_than_all_prompts():
    serving = pb.Serving(prompt=100)
    assert chunk_of(serving, pb.Layout(), 8192, sequences=2, value=2).tokens == 200
    assert chunk_of(serving, pb.Layout(), 8192, sequences=200, value=2).tokens == 8192
    assert chunk_of(serving, pb.Layout(cp=2), 8192, sequences=200, value=2).tokens == 4096


def test_expert_ranks_gather_the_tokens_of_all_replicas():
    found = chunk_of(pb.Serving(), pb.Layout(dp=8, ep=8), 8192, sequences=8, value=2)
    assert found.gathered == 8 * 8192


def test_buffers_are_for_reductions_stage_inputs_and_gathered_tokens():
    chunk = Chunk(tokens=1000, rows=1, value=2, gathered=1000)
    assert buffer_bytes(LLAMA, pb.Layout(), chunk, first=True) == 0
    assert buffer_bytes(LLAMA, pb.Layout(tp=2), chunk, first=True) == 24 * MIB
    assert buffer_bytes(LLAMA, pb.Layout(pp=2), chunk, first=False) == 2 * 1000 * 4096 * 2
    wide = Chunk(tokens=1000, rows=1, value=2, gathered=8000)
    assert buffer_bytes(LLAMA, pb.Layout(dp=8), wide, first=True) == 2 * 8000 * 4096 * 2


def test_only_the_last_stage_has_logits():
    load = pb.Serving(prompt=1, output=1, concurrency=2000)  # 2000 sampled rows outweigh a layer
    first, last = (
        stage_of(LLAMA, load, pb.Layout(pp=2), gpu("h100"), 8192, number, (16, 16)) for number in range(2)
    )
    assert last.instant.name == "head"
    assert first.instant.name == "prefill feed-forward"


def test_terms_of_one_name_are_one_row():
    found = stage_of(LLAMA, pb.Serving(), pb.Layout(), gpu("h100"), 8192, 0, (32,))
    names = [row["term"] for row in found.terms]
    assert len(names) == len(set(names))
    workspace = next(row for row in found.terms if row["term"] == "workspace")
    assert workspace["bytes"] == found.instant.bytes + 131_072 * 128 * 2
    assert "tables of sines and cosines" in workspace["formula"]

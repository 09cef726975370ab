from playbook.frameworks import policy
from playbook.program.policy import Sizes
from playbook.program.recompute import recompute
from playbook.spec import Workload, recipe


def layer_of(small, framework="textbook", attention="flash"):
    sizes = Sizes.of(small, Workload(sequence=32, attention=attention), recipe("bf16-fp32master"))
    return policy(framework).layer(sizes)


def kept_from_forward(block):
    return {tensor.name for tensor in block.tensors if tensor.saved}


def test_full_recompute_keeps_the_input_of_a_layer_only(small):
    (block,) = recompute((layer_of(small),), "full", stops_early=False)
    assert kept_from_forward(block) == {"input"}


def test_the_second_forward_runs_every_row_again_where_the_framework_does(small):
    plain = layer_of(small)
    (block,) = recompute((plain,), "full", stops_early=False)
    again = [op.name for op in block.backward if op.phase == "R"]
    assert again == ["R:" + op.name for op in plain.forward]


def test_pytorch_stops_before_the_operation_after_the_last_saved_tensor(small):
    (block,) = recompute((layer_of(small, "transformers"),), "full", stops_early=True)
    again = [op.name for op in block.backward if op.phase == "R"]
    assert again[-1] == "R:mlp/mul#0"
    assert "R:mlp.down_proj/mm#0" not in again


def test_the_recomputed_layer_saves_what_it_saved_before(small):
    plain = layer_of(small)
    (block,) = recompute((plain,), "full", stops_early=True)
    saved_again = sum(t.bytes for t in block.tensors if t.name.startswith("R:") and t.bwd_end.row[:2] != "R:")
    assert saved_again == sum(t.bytes for t in plain.tensors if t.saved and t.birth.block == 0)


def test_selective_recompute_drops_the_score_matrix(small):
    plain = layer_of(small, attention="math")
    (block,) = recompute((plain,), "selective", stops_early=True)
    assert kept_from_forward(plain) - kept_from_forward(block) == {"scores"}
    assert [op.name for op in block.backward if op.phase == "R"] == ["R:self_attn/sdpa#0"]


def test_selective_recompute_changes_nothing_under_flash_attention(small):
    plain = layer_of(small)
    (block,) = recompute((plain,), "selective", stops_early=True)
    assert (block.backward, block.tensors) == (plain.backward, plain.tensors)


def test_blocks_at_the_ends_are_left_alone(small):
    sizes = Sizes.of(small, Workload(sequence=32), recipe("bf16-fp32master"))
    ends = (policy("textbook").embedding(sizes), policy("textbook").head(sizes))
    assert recompute(ends, "full", stops_early=True) == ends

"""Rows of grouped attention, and its core by hand."""

from playbook.frameworks.textbook_attention import attention, attention_flops, projections
from playbook.program.sizes import Sizes
from playbook.spec import Model, Workload, recipe


def sizes(attention="flash", **fields):
    shape = {"hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 48, "vocabulary": 64}
    model = Model(name="llama", family="llama", layers=2, max_sequence=64, **shape, **fields)
    work = Workload(sequence=16, micro_batch=3, attention=attention)
    return Sizes.of(model, work, recipe("bf16-fp32master"))


def test_projections_cost_two_flops_a_weight_and_token():
    flops = {name.rpartition(".")[2]: facts[0] for name, facts in projections(sizes()).items()}
    assert flops == dict.fromkeys(("q_proj", "o_proj"), 2 * 48 * 32 * 32) | dict.fromkeys(
        ("k_proj", "v_proj"), 2 * 48 * 32 * 16
    )


def test_the_core_counts_the_pairs_that_a_window_leaves():
    """4·b·s·w·a·k with w the window, or the sequence where it is shorter."""
    found = [attention_flops(sizes(window=window)) for window in (None, 64, 16, 5)]
    assert found == [4 * 3 * 16 * pairs * 4 * 8 for pairs in (16, 16, 16, 5)]


def test_backward_of_the_core_is_two_and_a_half_forwards_by_flash_and_two_by_math():
    for kind, times in (("flash", 2.5), ("math", 2)):
        z = sizes(kind)
        (row,) = [row for row in attention(z).backward if row.op == "sdpa_backward"]
        assert row.flops == times * attention_flops(z)


def test_the_input_is_read_last_by_the_values_and_needed_last_for_the_queries_weight():
    assert attention(sizes()).reads == ("self_attn.v_proj/mm#0", "self_attn.q_proj/mm#1")

import pytest

from playbook.spec.tensor_class import class_of


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("embed_tokens.weight", 2, "table"),
        ("embed_positions.weight", 2, "table"),
        ("lm_head.weight", 2, "head"),
        ("self_attn.q_proj.weight", 2, "matrix"),
        ("mlp.experts.gate_proj", 3, "matrix"),
        ("mlp.experts.gate_proj_bias", 2, "vector"),
        ("self_attn.q_proj.bias", 1, "vector"),
        ("norm.weight", 1, "vector"),
    ],
)
def test_tensors_are_told_apart_by_name_and_dimensions(name, dims, expected):
    assert class_of(name, dims) == expected

import pytest
import torch

from playbook.models.transformer import RMSNorm, Transformer, loss_of, rotary_tables, rotate, seed_weights
from playbook.spec import Model, model

SMALL = Model(
    name="small",
    family="llama",
    layers=3,
    hidden=16,
    heads=4,
    kv_heads=2,
    head_dim=4,
    ffn=20,
    vocabulary=32,
    max_sequence=16,
)


def built(spec=SMALL, seed=0, layers=None):
    module = Transformer(spec, layers)
    seed_weights(module, seed)
    return module.double()


def tokens(sequence=6, seed=1):
    return torch.randint(32, (2, sequence), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "changes", [{}, {"tied": True}, {"qkv_bias": True}, {"qk_norm": True}, {"mlp_bias": True}]
)
def test_parameters_have_the_names_and_shapes_of_the_description(changes):
    spec = Model(**{**SMALL.to_dict(), **changes})
    found = {name: tuple(value.shape) for name, value in Transformer(spec).named_parameters()}
    expected = {p.name: p.shape for p in (*spec.embedding_parameters(), *spec.head_parameters())}
    for layer in range(spec.layers):
        expected |= {f"layers.{layer}.{p.name}": p.shape for p in spec.block_parameters()}
    assert found == expected


def test_toy_15m_has_its_number_of_parameters():
    module = Transformer(model("toy-15m"))
    assert sum(p.numel() for p in module.parameters()) == 15_733_632


def test_a_token_sees_only_those_before_it():
    module, first = built(), tokens()
    changed = first.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 32
    before, after = module(first), module(changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_stages_one_after_the_other_are_the_whole_model():
    whole, first, last = built(), built(layers=[0]), built(layers=[1, 2])
    assert torch.equal(last(first(tokens())), whole(tokens()))


def test_weights_depend_on_seed_and_name_only():
    whole, part = built(), built(layers=[1])
    assert torch.equal(whole.layers["1"].mlp.up_proj.weight, part.layers["1"].mlp.up_proj.weight)
    assert not torch.equal(whole.layers["1"].mlp.up_proj.weight, whole.layers["2"].mlp.up_proj.weight)
    assert not torch.equal(whole.lm_head.weight, built(seed=1).lm_head.weight)


def test_norm_divides_by_the_root_of_the_mean_square():
    norm = RMSNorm(2, epsilon=0.0)
    found = norm(torch.tensor([[3.0, 4.0]]))
    assert torch.allclose(found, torch.tensor([[3.0, 4.0]]) / 12.5**0.5)


def test_rotation_keeps_lengths_and_depends_on_the_distance_of_positions_only():
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 4, generator=generator, dtype=torch.float64).expand(2, 1, 1, 8, 4)
    rotary = rotary_tables(8, q, SMALL)
    turned_q, turned_k = rotate(q, rotary), rotate(k, rotary)
    assert torch.allclose(turned_q.norm(dim=-1), q.norm(dim=-1))
    scores = turned_q[0, 0] @ turned_k[0, 0].T
    assert torch.allclose(scores[5, 3], scores[2, 0])
    assert not torch.allclose(scores[5, 3], scores[5, 4])


def test_the_first_position_is_not_rotated():
    cos, sin = rotary_tables(3, torch.zeros(1, dtype=torch.float64), SMALL)
    assert cos.shape == sin.shape == (3, 4)
    assert cos[0].tolist() == [1.0] * 4
    assert sin[0].tolist() == [0.0] * 4


def test_loss_of_even_logits_is_the_logarithm_of_the_vocabulary():
    loss = loss_of(torch.zeros(2, 3, 32, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.int64))
    assert loss.item() == pytest.approx(3.4657359027997265)


def test_half_precision_logits_are_widened_for_the_loss():
    assert (
        loss_of(torch.zeros(1, 1, 4, dtype=torch.bfloat16), torch.zeros(1, 1, dtype=torch.int64)).dtype
        == torch.float32
    )


def test_a_kind_that_is_not_computed_is_refused_with_what_would_work():
    with pytest.raises(ValueError, match="toy-15m"):
        Transformer(model("gpt2"))

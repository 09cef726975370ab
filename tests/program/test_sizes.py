import pytest

from playbook.program.polynomial import Polynomial
from playbook.program.sizes import ModelSymbols, Sizes
from playbook.spec import Workload, model, recipe


def test_sizes_are_those_of_model_and_workload():
    z = Sizes.of(model("llama-3.1-8b"), Workload(sequence=128, micro_batch=2), recipe("fsdp2-mixed"))
    assert (z.b, z.s, z.T, z.h, z.a, z.g, z.k, z.f, z.V) == (2, 128, 256, 4096, 32, 8, 128, 14336, 128256)
    assert z.value == 2


DEEPSEEK = {"h": 2048, "a": 16, "f": 10944, "V": 102400, "E": 64, "K": 6, "e": 1408, "w": 2816}
DEEPSEEK |= {"rkv": 512, "dn": 128, "dr": 64, "dv": 128}


def test_sizes_of_experts_and_latents_are_zero_where_a_model_has_none():
    names = ("E", "K", "e", "w", "rq", "rkv", "dn", "dr", "dv")
    plain, deep = (
        Sizes.of(model(name), Workload(sequence=128), recipe("fp32"))
        for name in ("llama-3.1-8b", "deepseek-v2-lite")
    )
    assert [getattr(plain, name) for name in names] == [0] * 9
    assert [getattr(deep, name) for name in names] == [64, 6, 1408, 2816, 0, 512, 128, 64, 128]
    assert (plain.query_dim, plain.value_dim, deep.query_dim, deep.value_dim) == (128, 128, 192, 128)
    assert (plain.n, deep.n) == (0, 6 * 128)


def test_layers_are_dense_or_routed_and_see_the_sequence_or_a_window():
    z = Sizes.of(model("deepseek-v2-lite"), Workload(sequence=128), recipe("fp32"))
    assert [z.routed(layer) for layer in (0, 1, 26)] == [False, True, True]
    gemma = Sizes.of(model("gemma-3-1b"), Workload(sequence=1024), recipe("fp32"))
    # Every sixth layer of Gemma 3 sees all tokens.
    assert [gemma.keys(layer) for layer in (0, 4, 5, 6)] == [512, 512, 1024, 512]


def values_of(shape):
    values = {"h": shape.hidden, "a": shape.heads, "g": shape.kv_heads, "k": shape.head_dim}
    return values | {"f": shape.ffn, "V": shape.vocabulary}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, values_of(model(name))) for name in ("llama-3.1-8b", "gpt2", "qwen3-8b", "qwen2.5-7b")),
        ("deepseek-v2-lite", DEEPSEEK),
    ],
)
def test_a_models_own_code_gives_its_shapes_as_polynomials(name, values):
    numbers, symbols = model(name), ModelSymbols(model(name))
    for layer in (0, 1):
        for mine, theirs in zip(
            symbols.block_parameters(layer), numbers.block_parameters(layer), strict=True
        ):
            assert mine.name == theirs.name
            assert tuple(size_at(size, values) for size in mine.shape) == theirs.shape


def size_at(size, values):
    return size.at(values) if isinstance(size, Polynomial) else size

import pytest

from playbook.frameworks import policy
from playbook.program.policy import Context, Sizes
from playbook.program.polynomial import Polynomial, symbol
from playbook.program.sizes import ModelSymbols
from playbook.spec import Workload, model, recipe


def test_sizes_are_those_of_model_and_workload():
    z = Sizes.of(model("llama-3.1-8b"), Workload(sequence=128, micro_batch=2), recipe("fsdp2-mixed"))
    assert (z.b, z.s, z.T, z.h, z.a, z.g, z.k, z.f, z.V) == (2, 128, 256, 4096, 32, 8, 128, 14336, 128256)
    assert z.value == 2


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2", "qwen3-8b", "qwen2.5-7b"])
def test_a_models_own_code_gives_its_shapes_as_polynomials(name):
    numbers, symbols = model(name), ModelSymbols(model(name))
    values = {"h": numbers.hidden, "a": numbers.heads, "g": numbers.kv_heads, "k": numbers.head_dim}
    values |= {"f": numbers.ffn, "V": numbers.vocabulary}
    for mine, theirs in zip(symbols.block_parameters(), numbers.block_parameters(), strict=True):
        assert mine.name == theirs.name
        assert tuple(size_at(size, values) for size in mine.shape) == theirs.shape


def size_at(size, values):
    return size.at(values) if isinstance(size, Polynomial) else size


def test_a_size_is_divided_exactly_or_refused():
    ctx = Context(policy=policy("textbook"), recipe=recipe("fp32"))
    assert ctx.divide(12, 4, "t") == 3
    assert ctx.divide(symbol("h"), 4, "t") == symbol("h").over("t")
    assert ctx.divide(symbol("h"), 1, "t") == symbol("h")
    with pytest.raises(ValueError, match="10 does not divide by 4"):
        ctx.divide(10, 4, "t")

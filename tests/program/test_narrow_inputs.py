from playbook.frameworks.textbook import POLICY
from playbook.program.narrow_inputs import narrow_inputs
from playbook.program.policy import Sizes
from playbook.spec import Workload, model, recipe

T, H, F = 128, 2048, 8192


def saved(name):
    sizes = Sizes.of(model("llama-3.2-1b"), Workload(sequence=T), recipe(name))
    (layer,) = narrow_inputs((POLICY.layer(sizes),), recipe(name))
    return {tensor.name: tensor.bytes for tensor in layer.tensors if tensor.saved}


def test_inputs_of_products_are_kept_in_a_byte():
    wide, narrow = saved("bf16"), saved("fp8")
    for name, values in (("norm output", T * H), ("norm output 2", T * H), ("activation", T * F)):
        assert (wide[name], narrow[name]) == (2 * values, values)


def test_flash_attention_keeps_its_output_and_the_product_behind_it_a_copy():
    narrow = saved("fp8")
    assert narrow["attention output"] == 2 * T * H
    assert narrow["self_attn.o_proj input"] == T * H


def test_nothing_else_changes():
    wide, narrow = saved("bf16"), saved("fp8")
    same = set(wide) - {"norm output", "norm output 2", "activation"}
    assert {name: wide[name] for name in same} == {name: narrow[name] for name in same}
    assert set(narrow) - set(wide) == {"self_attn.o_proj input"}

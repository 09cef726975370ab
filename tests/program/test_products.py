from playbook.frameworks.textbook import POLICY
from playbook.program.policy import Sizes
from playbook.program.products import products, readers
from playbook.spec import Workload, model, recipe

LAYER = POLICY.layer(Sizes.of(model("llama-3.2-1b"), Workload(sequence=128), recipe("bf16")))
FOUND = products(LAYER)


def read_by(name):
    (tensor,) = [t for t in LAYER.tensors if t.name == name]
    return tuple(owner.rpartition(".")[2] for owner in readers(tensor, LAYER, FOUND))


def test_a_llama_layer_has_seven_products():
    assert [owner.rpartition(".")[2] for owner in FOUND] == [
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    ]
    assert FOUND["mlp.up_proj"].shape == (8192, 2048)


def test_readers_are_the_products_between_birth_and_last_use():
    assert read_by("norm output") == ("q_proj", "k_proj", "v_proj")
    assert read_by("norm output 2") == ("gate_proj", "up_proj")
    assert read_by("activation") == ("down_proj",)


def test_what_another_row_of_backward_needs_has_no_readers():
    assert read_by("attention output") == ()
    assert read_by("gate") == ()

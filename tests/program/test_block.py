from playbook.program.block import Tensor, Weight, total
from playbook.program.op import At


def test_a_tensor_is_saved_if_it_has_both_ends():
    born = At("F", "/a#0")
    kept = Tensor(name="x", term="activations", bytes=1, birth=born, fwd_end=born, bwd_end=At("B", "/a#0"))
    passing = Tensor(name="x", term="activations", bytes=1, birth=born, fwd_end=born)
    assert (kept.saved, passing.saved) == (True, False)
    assert (kept.death, passing.death) == (At("B", "/a#0"), born)


def test_a_weight_counts_its_elements():
    assert Weight(name="w", shape=(3, 5)).numel == 15


def test_elements_of_several_weights_add_up():
    assert total([Weight(name="w", shape=(3, 5)), Weight(name="b", shape=(3,))]) == 18
    assert total([]) == 0

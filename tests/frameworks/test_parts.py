import pytest

from playbook.frameworks.parts import backward, block_gradient, block_input, forward, passing, saved, weights
from playbook.program.op import END, At
from playbook.spec import Parameter


def test_rows_know_their_phase():
    assert (forward("mlp", "mm", 8, "tp").phase, backward("mlp", "mm").phase) == ("F", "B")


def test_a_saved_tensor_has_three_places_and_a_passing_one_two():
    assert saved("x", 4, "a", "b", "c", "full").saved
    assert not passing("x", 4, "a", "b", "full").saved


def test_what_crosses_blocks_belongs_to_the_consumer():
    assert block_input(4, "/add#0", None).birth == At("F", END, -1)
    assert block_gradient(4, "/add#0").birth == At("B", END, 1)


def test_a_parameter_without_a_row_for_its_gradient_is_named():
    parameters = (Parameter("a.weight", (2, 3), 0), Parameter("b.weight", (3,), None))
    (weight, other) = weights(parameters, {"a.weight": "a/mm#1", "b.weight": "b/sum#0"})
    assert (weight.ready, weight.numel, other.tp_dim) == (At("B", "a/mm#1"), 6, None)
    with pytest.raises(ValueError, match="no row of backward makes the gradient of 'b.weight'"):
        weights(parameters, {"a.weight": "a/mm#1"})

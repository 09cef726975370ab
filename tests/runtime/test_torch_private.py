import pytest
import torch

from playbook.runtime import torch_private


def test_this_torch_has_every_private_part():
    assert torch_private.missing() == []


def test_a_part_that_is_gone_is_named():
    parts = {"gone": ("torch.autograd", "_no_such_part"), "moved": ("torch.no_such_module", "Part")}
    assert torch_private.missing(parts) == ["torch.autograd._no_such_part", "torch.no_such_module.Part"]


def test_asking_for_a_part_that_is_gone_says_which_versions_have_it(monkeypatch):
    monkeypatch.setitem(torch_private.PARTS, "gone", ("torch.autograd", "_no_such_part"))
    with pytest.raises(ValueError, match="torch.autograd._no_such_part; versions 2.11 to 2.13"):
        torch_private.part("gone")


def test_the_running_node_and_its_number_are_seen_from_inside_a_backward():
    seen = []
    x = torch.ones(2, requires_grad=True)
    first = torch_private.next_sequence_number()
    y = x * 2
    y.register_hook(lambda grad: seen.append(torch_private.current_node()))
    z = y.exp()
    assert torch_private.sequence_number(y.grad_fn) == first
    assert torch_private.next_sequence_number() == first + 2
    z.sum().backward()
    assert seen[0] is not None
    assert torch_private.current_node() is None


def test_a_node_that_accumulates_a_gradient_has_no_number():
    x = torch.ones(2, requires_grad=True)
    accumulate = (x * 2).grad_fn.next_functions[0][0]
    assert torch_private.sequence_number(accumulate) is None

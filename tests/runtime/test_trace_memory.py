import torch

from playbook.runtime.record import record_step
from playbook.runtime.torch_private import part
from playbook.runtime.trace_memory import Ledger
from playbook.runtime.traced_walk import walk
from tests.runtime.steps import step_of, transformer


def ledger_of(module, optimizer=None):
    ledger = Ledger()
    for parameter in module.parameters():
        ledger.own(parameter, "parameters")
    for state in optimizer.state.values() if optimizer else ():
        for tensor in state.values():
            ledger.own(tensor, "optimizer")
    return ledger


def walked(module, step, optimizer=None):
    step()
    return walk(record_step(step, module, "dp", ledger=ledger_of(module, optimizer)))


class Doubling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(100))

    def forward(self, x):
        return (self.weight * x).exp()


def test_births_deaths_and_saved_tensors_of_two_operations_are_counted_by_hand():
    module, x = Doubling(), torch.ones(100)

    def step():
        module(x).sum().backward()
        module.zero_grad()

    found = walked(module, step)
    # Forward, at exp: weight, x, product (which dies there) and the result (which is saved), 400 each.
    # Backward, at the product with the result: weight, x, result, product; the loss and its gradient, 4 each.
    assert found.peak_bytes == 4 * 400 + 8
    assert found.terms["parameters"] == 400
    assert sum(found.terms.values()) == found.peak_bytes


def test_the_peak_is_that_of_torch_s_own_tracker():
    with part("FakeTensorMode")():
        module = transformer(layers=3)
        optimizer = torch.optim.AdamW(module.parameters(), fused=True)
        step = step_of(module, optimizer)
        found = walked(module, step, optimizer)
        tracker = part("MemTracker")()
        tracker.track_external(module, optimizer)
        with tracker:
            step()
        snapshot = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    assert found.peak_bytes == snapshot["Total"]


def test_fake_and_real_tensors_give_one_walk():
    def peak():
        module = transformer()
        optimizer = torch.optim.AdamW(module.parameters(), foreach=True)
        found = walked(module, step_of(module, optimizer), optimizer)
        return found.peak_bytes, found.terms, found.instant

    real = peak()
    with part("FakeTensorMode")():
        assert peak() == real


def test_state_is_told_apart_by_what_it_is_for():
    module = transformer()
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    found = walked(module, step_of(module, optimizer), optimizer)
    elements = sum(parameter.numel() for parameter in module.parameters())
    last = dict(zip(("parameters", "gradients", "optimizer"), found.levels[-1, :3], strict=True))
    steps = 4 * len(list(module.parameters()))  # AdamW keeps a step count, four bytes, for every tensor
    assert last == {
        "parameters": 4 * elements,
        "gradients": 4 * elements,
        "optimizer": 8 * elements + steps,
    }


def test_a_storage_that_is_resized_is_counted_while_it_has_bytes():
    class Lent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.lent = torch.ones(1000)
            self.lent.untyped_storage().resize_(0)

        def forward(self, x):
            self.lent.untyped_storage().resize_(4000)
            y = x * self.weight
            self.lent.untyped_storage().resize_(0)
            return y

    module, x = Lent(), torch.ones(1)
    found = walked(module, lambda: module(x).sum().backward())
    assert found.levels[:, 6].max() == 4000
    assert found.levels[-1, 6] == 0

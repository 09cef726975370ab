from typing import Any

import pytest
import torch
from torch import nn

from playbook.runtime.twin_routing import take_turns, turns

TOKENS, EXPERTS, ACTIVE = 12, 8, 2


class TopKRouter(nn.Module):
    """A router as transformers writes them: logits, weights of the chosen, the choice."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, 4))

    def forward(self, x):
        logits = x @ self.weight.T
        best, choice = torch.topk(logits.softmax(-1), ACTIVE)
        return logits, best / best.sum(-1, keepdim=True), choice


def routed(x):
    router: Any = TopKRouter()
    take_turns(nn.Sequential(router))
    return router, router(x)


def test_every_expert_gets_as_many_tokens_and_no_token_one_twice():
    _, (_, weights, choice) = routed(torch.randn(TOKENS, 4))
    assert torch.bincount(choice.flatten()).tolist() == [TOKENS * ACTIVE // EXPERTS] * EXPERTS
    assert all(len(set(row)) == ACTIVE for row in choice.tolist())
    torch.testing.assert_close(weights.sum(-1), torch.ones(TOKENS))


@pytest.mark.parametrize(("tokens", "active", "experts"), [(5, 2, 8), (7, 3, 4), (1, 8, 128)])
def test_where_tokens_do_not_divide_the_first_experts_get_one_more(tokens, active, experts):
    counts = torch.bincount(turns(tokens, active, experts).flatten(), minlength=experts)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == tokens * active
    assert (counts.diff() <= 0).all()


def test_the_scores_of_the_experts_in_turn_get_the_gradient():
    router, (logits, weights, choice) = routed(torch.randn(TOKENS, 4))
    logits.retain_grad()
    (weights[:, 0] * torch.arange(1.0, TOKENS + 1)).sum().backward()
    assert router.weight.grad.abs().sum() > 0
    assert choice[0].tolist() == [0, 1]


def test_code_without_such_a_router_is_refused():
    with pytest.raises(ValueError, match=r"no module of Sequential is a TopKRouter.*5\.17 or later"):
        take_turns(nn.Sequential(nn.Linear(2, 2)))

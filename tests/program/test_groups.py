from playbook.frameworks import policy
from playbook.program.block import Weight
from playbook.program.groups import groups
from playbook.program.policy import Context
from playbook.spec import recipe

DENSE, EXPERT = Weight(name="a", shape=(4, 3)), Weight(name="b", shape=(8, 3), expert=True)


def context(**fields):
    return Context(policy=policy("textbook"), recipe=recipe("fp32"), **fields)


def test_dense_weights_and_experts_have_the_same_peers_without_tensor_and_expert_parallelism():
    (both,) = groups((DENSE, EXPERT), context(dp=4, cp=2, dp_replicate=2))
    assert (both.weights, both.ranks, both.expert) == ((DENSE, EXPERT), 4, False)
    assert groups((), context(dp=4)) == ()


def test_experts_have_peers_of_their_own_with_them():
    """8 · 2 · 4 ranks, etp=2, ep=4, two replicas: 64 / (2 · 4 · 2) = 4 hold the same experts."""
    ctx = context(dp=8, cp=2, tp=4, ep=4, etp=2, dp_replicate=2)
    dense, experts = groups((DENSE, EXPERT), ctx)
    assert (dense.weights, dense.ranks, dense.expert) == ((DENSE,), 8, False)
    assert (experts.weights, experts.ranks, experts.expert) == ((EXPERT,), 4, True)
    op = experts.collective("all_gather", "F", 10)
    assert (op.owner, op.axis, op.ranks) == ("mlp.experts", "dp", 4)
    assert dense.collective("all_gather", "F", 10).ranks == 0


def test_every_rank_has_a_place_among_the_peers_of_its_experts():
    """dp=4, tp=2, ep=2: rank order tp first; experts alternate, so ranks 0, 2, 4, 6 hold the same."""
    places = [
        context(dp=4, tp=2, ep=2, dp_rank=dp, tp_rank=tp).place(expert=True)
        for dp in range(4)
        for tp in range(2)
    ]
    assert places == [0, 0, 1, 1, 2, 2, 3, 3]
    dense = [context(dp=4, tp=2, ep=2, dp_rank=dp).place(expert=False) for dp in range(4)]
    assert dense == [0, 1, 2, 3]

"""A model whose sizes are easy to count by hand, and scenarios of it."""

import pytest

from playbook.spec import Layout, Model, Scenario, Workload, cluster

LAYER = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64
"""Elements of one layer: q, k and v, o, feed-forward, two norms = 30 848."""

ROOT = 2 * 128 * 64 + 64
"""Elements of the ends: token table, head, last norm = 16 448."""

PSI = 4 * LAYER + ROOT


@pytest.fixture
def small():
    return Model(
        name="small",
        family="llama",
        layers=4,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        ffn=96,
        vocabulary=128,
        max_sequence=64,
    )


@pytest.fixture
def scenario(small):
    """Make a scenario of the small model from fields of Layout and Workload."""

    def make(framework="textbook", **fields):
        names = set(Layout.__dataclass_fields__)
        layout = Layout(**{name: value for name, value in fields.items() if name in names})
        given = {"sequence": 32, **{name: value for name, value in fields.items() if name not in names}}
        return Scenario(small, Workload(**given), layout, cluster("laptop"), framework=framework)

    return make

"""Small models for the spine's tests, with sizes that are easy to count by hand."""

import pytest

from playbook.spec import Layout, Model, Scenario, Workload, cluster


@pytest.fixture
def small():
    """A Llama kind: 4 layers of 64, 4 query and 2 key-value heads of 16, feed-forward 96, vocabulary 128."""
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

    def make(framework="textbook", model=small, **fields):
        names = set(Layout.__dataclass_fields__)
        layout = Layout(**{name: value for name, value in fields.items() if name in names})
        given = {"sequence": 32, **{name: value for name, value in fields.items() if name not in names}}
        return Scenario(model, Workload(**given), layout, cluster("laptop"), framework=framework)

    return make

"""A model whose sizes are easy to count by hand, and scenarios of it."""

from dataclasses import replace

import pytest

from playbook.runtime.pool import Pool
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


@pytest.fixture
def tiny():
    """Two layers for real ranks; every size divides by 4.

    Elements: token table and head 132 · 24 = 3 168 each, last norm 24; a layer q 32 · 24 = 768, k and v 16 ·
    24 = 384 each, o 24 · 32 = 768, gate, up and down 44 · 24 = 1 056 each, two norms 48: 5 520. In all 17
    400.
    """
    return Model(
        name="tiny",
        family="llama",
        layers=2,
        hidden=24,
        heads=4,
        kv_heads=2,
        head_dim=8,
        ffn=44,
        vocabulary=132,
        max_sequence=64,
    )


@pytest.fixture
def odd(tiny):
    """The same with rows that no even number of ranks divides."""
    return replace(tiny, name="odd", hidden=21, ffn=43, vocabulary=131)


@pytest.fixture(scope="session", autouse=True)
def runs(tmp_path_factory):
    """Run directories of the tests go to a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYBOOK_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield


@pytest.fixture(scope="session")
def two():
    """Two warm gloo ranks."""
    with Pool(ranks=2, backend="gloo") as pool:
        yield pool


@pytest.fixture(scope="session")
def four():
    """Four warm gloo ranks."""
    with Pool(ranks=4, backend="gloo") as pool:
        yield pool

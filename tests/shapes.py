"""Models whose sizes are easy to count by hand, and scenarios of them."""

from typing import Any

from playbook.spec import Layout, Model, Scenario, Workload, cluster

SMALL = Model(
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

TINY = Model(
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
"""Two layers for real ranks; every size divides by 4.

Elements: token table and head 132 · 24 = 3 168 each, last norm 24; a layer q 32 · 24 = 768, k and v 16 · 24
= 384 each, o 24 · 32 = 768, gate, up and down 44 · 24 = 1 056 each, two norms 48: 5 520. In all 17 400.
"""


def scenario_of(framework: str = "textbook", model: Model = SMALL, **fields: object) -> Scenario:
    """Make a scenario from fields of Layout and Workload; 32 tokens a sequence unless told otherwise."""
    names = set(Layout.__dataclass_fields__)
    layout = Layout(**{name: value for name, value in fields.items() if name in names})
    work = {"sequence": 32, **{name: value for name, value in fields.items() if name not in names}}
    return Scenario(model, Workload(**work), layout, cluster("laptop"), framework=framework)


def gpt(**sizes: Any) -> Model:
    """A GPT kind without grouped heads: LayerNorm, a feed-forward part without gate."""
    return Model(family="gpt2", kv_heads=sizes["heads"], gated=False, norm="layer", **sizes)

"""The derived form of a scenario, for sliders and planners: one derivation a structural variant, then arrays.

Structure is what changes the rows: framework, recipe, recompute, ZeRO stage, whether tensor parallelism is
on, whether micro-batches accumulate. Sizes and degrees are values. Shards count P/N here where the walk
rounds rows up, so the two agree to the padding (none where N divides every parameter's rows).
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from playbook.predict.stages import blocks_of, context
from playbook.program.assemble import assemble
from playbook.program.closed_form import ClosedForm, derive
from playbook.program.lay import Stage
from playbook.program.order import accumulate
from playbook.program.step import Program
from playbook.spec import Scenario
from playbook.spec.cluster import smallest_cluster

LAYERS = 6
"""Layers of the smaller program: three at either end stand for all."""


def closed_form(s: Scenario) -> ClosedForm:
    """Return the derived form of a scenario's structural variant.

    Raises
    ------
    ValueError
        If the scenario has a pipeline, whose stages are walked action by action instead.
    """
    if s.layout.stages > 1:
        raise ValueError(
            f"pp={s.layout.pp} x chunks={s.layout.chunks}: the derived form is that of a step without a "
            "pipeline; use pp=1, or training_memory, which walks stages by their summaries"
        )
    return _form(variant(s))


def variant(s: Scenario) -> Scenario:
    """The scenario with every value that does not change the rows set to one and the same."""
    layout, model = s.layout, s.model
    whole_heads = layout.tp <= model.kv_heads
    tp = 1 if layout.tp == 1 else (2 if whole_heads else 4)
    dp = 1 if layout.dp == 1 else 2
    microbatches = min(s.microbatches, 3)
    fields = dict.fromkeys(("hidden", "ffn", "vocabulary", "max_sequence"), 64)
    fields |= {"heads": 4, "kv_heads": 4 if whole_heads else 2, "head_dim": 16, "layers": LAYERS}
    fields |= {"positions": 64 if model.positions else 0}
    shape = replace(model, name="variant", source="symbols", window=None, ignored_keys=(), **fields)
    work = replace(s.workload, sequence=64, micro_batch=1, global_batch=dp * microbatches)
    cut = replace(layout, tp=tp, dp=dp)
    return replace(s, model=shape, workload=work, layout=cut, cluster=smallest_cluster(cut.world))


@lru_cache(maxsize=64)
def _form(s: Scenario) -> ClosedForm:
    return derive(_symbolic(s, LAYERS), _symbolic(s, LAYERS + 1), LAYERS)


def _symbolic(s: Scenario, layers: int) -> Program:
    ctx = context(s, symbolic=True)
    stage = Stage(blocks_of(s, 0, ctx, layers), [-1, *range(layers), -1])
    return assemble({0: stage}, accumulate(s.microbatches))


def values_of(s: Scenario) -> dict[str, Any]:
    """Value of each symbol in a scenario."""
    model, work, layout = s.model, s.workload, s.layout
    return {
        "b": work.micro_batch,
        "s": work.sequence,
        "h": model.hidden,
        "a": model.heads,
        "g": model.kv_heads,
        "k": model.head_dim,
        "f": model.ffn,
        "V": model.vocabulary,
        "N": layout.dp,
        "t": layout.tp,
        "L": model.layers,
    }

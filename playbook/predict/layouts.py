"""The derived form of a scenario, for sliders and planners: one derivation a structural variant, then arrays.

Structure is what changes the rows: framework, recipe, recompute, ZeRO stage, whether tensor parallelism is
on, whether heads share keys and values, whether micro-batches accumulate, and how many dense layers stand
before those with experts. Sizes and degrees are values. Shards count P/N here where the walk rounds rows up,
so the two agree to the padding (none where N divides every parameter's rows).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from playbook.predict.stages import blocks_of, context
from playbook.program.assemble import assemble
from playbook.program.closed_form import ENDS, ClosedForm, derive
from playbook.program.lay import Stage
from playbook.program.order import accumulate
from playbook.program.sizes import MLA_SYMBOLS, MOE_SYMBOLS
from playbook.program.step import Program
from playbook.spec import Layout, Mla, Model, Moe, Scenario
from playbook.spec.cluster import smallest_cluster

LAYERS = 6
"""Layers of the smaller program: three at either end stand for all."""


def closed_form(s: Scenario) -> ClosedForm:
    """Return the derived form of a scenario's structural variant.

    Raises
    ------
    ValueError
        If the scenario has a pipeline, whose stages are walked action by action instead, or if layers with
        experts and dense ones take turns.
    """
    if s.layout.stages > 1:
        raise ValueError(
            f"pp={s.layout.pp} x chunks={s.layout.chunks}: the derived form is that of a step without a "
            "pipeline; use pp=1, or training_memory, which walks stages by their summaries"
        )
    if s.model.moe is not None and not uniform(s.model):
        raise ValueError(
            f"model {s.model.name!r} has dense layers among those with experts: the derived form counts equal"
            " layers; use training_memory, which walks each layer"
        )
    return _form(variant(s))


def uniform(model: Model) -> bool:
    """Whether all layers from the first one with experts on have experts."""
    kinds = [model.kind_of(layer) for layer in range(model.layers)]
    return kinds == sorted(kinds)


def variant(s: Scenario) -> Scenario:
    """The scenario with every value that does not change the rows set to one and the same."""
    layout, model = s.layout, s.model
    whole_heads = layout.tp <= model.kv_heads
    cut = replace(layout, **usual_degrees(layout, whole_heads))
    microbatches = min(s.microbatches, 3)
    dense, ways = leading(model), 2 * cut.tp * cut.cp
    fields: dict[str, Any] = dict.fromkeys(("hidden", "ffn", "vocabulary", "max_sequence"), 64 * ways)
    heads = 2 * ways if model.heads != model.kv_heads else ways
    fields |= {"heads": heads, "kv_heads": ways if whole_heads else max(1, cut.tp // 2), "head_dim": 16}
    fields |= {"layers": LAYERS + dense + 1, "moe": usual_experts(model.moe, dense, cut)}
    fields |= {"positions": 64 * ways if model.positions else 0}
    fields |= {"mla": usual_latents(model.mla), "mtp": 0, "source": "symbols", "ignored_keys": ()}
    fields |= {"window": None, "full_layers": (), "chunked": False}
    shape = replace(model, name="variant", **fields)
    work = replace(s.workload, sequence=64 * ways, micro_batch=1, global_batch=cut.dp * microbatches)
    return replace(s, model=shape, workload=work, layout=cut, cluster=smallest_cluster(cut.world))


def usual_degrees(layout: Layout, whole_heads: bool) -> dict[str, int]:
    """Degrees of one and the same size; those of expert parallelism stay, since they tie the others."""
    if layout.ep * layout.etp > 1:
        return {}
    replicas = min(layout.dp_replicate, 2)
    tp = 1 if layout.tp == 1 else (2 if whole_heads else 4)
    dp = replicas * (1 if layout.dp == layout.dp_replicate else 2)
    return {"tp": tp, "dp": dp, "cp": min(layout.cp, 2), "dp_replicate": replicas}


def leading(model: Model) -> int:
    """Dense layers before the first one with experts; 0 where no layer has any."""
    return model.kinds[-1]


def usual_experts(moe: Moe | None, dense: int, layout: Layout) -> Moe | None:
    """Experts of one and the same size behind so many dense layers, which a layout can share out."""
    if moe is None:
        return None
    shared = 16 * layout.tp if moe.shared_ffn else 0
    sizes = {"experts": 8 * layout.ep, "active": 2, "ffn": 16 * layout.etp * layout.tp}
    fields = {**sizes, "shared_ffn": shared, "first_dense": dense}
    return replace(moe, every=1, dense_layers=(), **fields)


def usual_latents(mla: Mla | None) -> Mla | None:
    """Latent attention of one and the same size."""
    if mla is None:
        return None
    rank = 16 if mla.query_rank else None
    return replace(mla, query_rank=rank, kv_rank=16, nope_dim=8, rope_dim=8, value_dim=16)


@lru_cache(maxsize=64)
def _form(s: Scenario) -> ClosedForm:
    dense = leading(s.model)
    fewer = LAYERS + dense
    return derive(_symbolic(s, fewer), _symbolic(s, fewer + 1), fewer, ENDS + dense)


def _symbolic(s: Scenario, layers: int) -> Program:
    ctx = context(s, symbolic=True)
    stage = Stage(blocks_of(s, 0, ctx, range(layers)), [-1, *range(layers), -1])
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
        "N": layout.shard_ranks,
        "Ne": layout.expert_shard_ranks,
        "t": layout.tp,
        "c": layout.cp,
        "ep": layout.ep,
        "etp": layout.etp,
        "L": model.layers,
        **part_values(model.moe, MOE_SYMBOLS),
        **part_values(model.mla, MLA_SYMBOLS),
    }


def part_values(part: Moe | Mla | None, symbols: Mapping[str, str]) -> dict[str, int]:
    """Value of each symbol of a part that a model has."""
    if part is None:
        return {}
    return {letter: getattr(part, name) for name, letter in symbols.items() if getattr(part, name)}

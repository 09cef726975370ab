"""What stages are made of: a framework's layer and ends, the copy of a tied table, adapters and dtypes."""

from collections.abc import Callable
from functools import lru_cache

from playbook.program.adapters import adapt
from playbook.program.block import Block, Weight
from playbook.program.narrow_inputs import narrow_inputs
from playbook.program.passes import Blocks
from playbook.program.policy import Context, Sizes
from playbook.spec import Scenario


@lru_cache(maxsize=128)
def layer_template(rule: Callable[[Sizes, int], Block], sizes: Sizes, layer: int) -> Block:
    """A framework's layer; one scenario asks for the same one for each stage, and each view of it again."""
    return rule(sizes, layer)


@lru_cache(maxsize=64)
def end_template(rule: Callable[[Sizes], Block], sizes: Sizes) -> Block:
    """A framework's embedding or head, likewise."""
    return rule(sizes)


def table_copy(sizes: Sizes, head: Block) -> tuple[Weight, ...]:
    """The token table that the last stage holds too where the head is tied to it."""
    table = sizes.embedding_parameters[0]
    product = next(op for op in head.backward if op.owner == "lm_head" and op.for_weights)
    ready = head.weights[0].ready._replace(row=product.name)
    return (Weight(name="lm_head.weight", shape=table.shape, tp_dim=table.tp_dim, ready=ready),)


def by_recipe(s: Scenario, blocks: Blocks, ctx: Context) -> Blocks:
    """Blocks with the adapters of the workload, and saved inputs of products in the recipe's dtype."""
    lora = s.workload.lora
    if lora is not None:
        tokens = Sizes.of(s.model, s.workload, s.recipe, symbolic=ctx.symbolic).T
        blocks = adapt(blocks, lora, s.recipe, tokens)
    return narrow_inputs(blocks, s.recipe)

"""Passes rewrite templates in one fixed order; a pair in the wrong order is refused unless it commutes.

policy → tensor (+ sequence) → context → expert → recompute → shard or replicate. The tensor pass and
recompute commute, because the recompute cut is a rule about the last saved tensor. Tensor, context and expert
passes commute: each divides by its own degree what the block declares, and writes sizes on what it inserts
that the others can still divide. Context and expert come before recompute, which copies their exchanges.
Sharding must come last: recompute would copy the gathers, and the others would divide parameters that are
already shared out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from playbook.program.block import Block
from playbook.program.policy import Context
from playbook.spec import Layout, Model, Scenario, Workload, cluster, model
from playbook.spec.rules import whole

ORDER = ("tensor", "context", "expert", "recompute", "data")
COMMUTE = frozenset(
    frozenset(pair)
    for pair in (
        ("tensor", "recompute"),
        ("tensor", "context"),
        ("tensor", "expert"),
        ("context", "expert"),
    )
)

Blocks = tuple[Block, ...]


def enter(block: Block, name: str) -> Block:
    """Note that a pass rewrites a block, after checking that it may still.

    Raises
    ------
    ValueError
        If the pass has been there already, or one that must follow it has.
    """
    if name in block.passes:
        raise ValueError(f"the {name} pass has rewritten block {block.name!r} already; apply it once")
    late = [done for done in ORDER[ORDER.index(name) + 1 :] if done in block.passes]
    wrong = [done for done in late if frozenset({done, name}) not in COMMUTE]
    if wrong:
        raise ValueError(
            f"the {name} pass came after the {wrong[0]} pass on block {block.name!r}; "
            f"the order is {', '.join(ORDER)}"
        )
    return replace(block, passes=block.passes | {name})


def each(blocks: Iterable[Block], rewrite: Callable[[Block], Block]) -> Blocks:
    """Rewrite every block, each distinct template once, so that equal layers stay one object."""
    done: dict[int, Block] = {}
    result = []
    for block in blocks:
        if id(block) not in done:
            done[id(block)] = rewrite(block)
        result.append(done[id(block)])
    return tuple(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A strategy as a pass: what it does to a block, when it applies, and a scenario in which it runs.

    Parameters
    ----------
    name
        The strategy, as its folder.
    axis
        Mesh axis over which it communicates.
    step
        Its place in `ORDER`, or "pipeline" for the order list.
    summary
        What it splits, what it keeps whole and what it sends, in a sentence.
    levers
        What can be varied, with the meaning of each; names of Layout's or Workload's fields, or `model`.
    applies
        Whether a layout uses it.
    rewrite
        The pass over the blocks of a stage.
    layout
        The layout of a number of ranks and the levers that are Layout's; used by `scenario`.
    workload
        Fields of the workload that its runs set unless a lever does.
    framework
        Whose accounting a run's scenario has.
    default_model
        Model of a run that names none, by its layout.
    run_levers
        Levers of its code on ranks that are no fields of Layout or Workload, with the meaning of each.
    refuse_run
        Function of a scenario and of whether the code is by hand, which raises ValueError for what that code
        does not do on ranks.
    """

    name: str
    axis: str
    step: str
    summary: str
    levers: Mapping[str, str]
    applies: Callable[[Layout], bool]
    rewrite: Callable[[Blocks, Context], Blocks]
    layout: Callable[..., Layout]
    workload: Mapping[str, object] = field(default_factory=dict)
    framework: str = "torch"
    default_model: Callable[[Layout], Model] = lambda layout: model("toy-15m")
    run_levers: Mapping[str, str] = field(default_factory=dict)
    refuse_run: Callable[[Scenario, bool], None] = lambda scenario, by_hand: None

    def scenario(self, ranks: int, **levers: object) -> Scenario:
        """Return the scenario of a run on so many ranks: a small model and a short sequence, on CPU.

        Raises
        ------
        ValueError
            If a lever is not this strategy's, or the ranks do not suit it.
        """
        valid = {**RUN_LEVERS, **self.levers}
        unknown = [name for name in levers if name not in valid]
        if unknown:
            raise ValueError(
                f"strategy {self.name} has no lever {unknown[0]!r}; levers are {', '.join(valid)}"
            )
        layout_fields = {f.name for f in fields(Layout)}
        chosen = {name: value for name, value in levers.items() if name in layout_fields}
        layout = self.layout(whole("ranks", ranks), **chosen)
        given = {**RUN_WORKLOAD, **self.workload}
        given.update((n, v) for n, v in levers.items() if n not in layout_fields and n not in RUN_ONLY)
        each_rank = layout.dp * int(given["micro_batch"])  # type: ignore[call-overload]
        count = whole(
            "microbatches", levers.get("microbatches", self.workload.get("microbatches", layout.pp))
        )
        given.pop("microbatches", None)
        given.setdefault("global_batch", each_rank * count)
        workload = Workload(**given)  # type: ignore[arg-type]
        shape = model(levers["model"]) if "model" in levers else self.default_model(layout)  # type: ignore[arg-type]
        return Scenario(shape, workload, layout, cluster("laptop"), framework=self.framework)


RUN_WORKLOAD: Mapping[str, object] = {"sequence": 64, "micro_batch": 2, "recipe": "fp32", "kernels": "cpu"}
RUN_ONLY = ("model", "microbatches")
RUN_LEVERS = {
    "model": "model, a preset or a config.json; small enough for the ranks' machine",
    "sequence": "tokens a sequence",
    "micro_batch": "sequences per replica and forward",
    "microbatches": "micro-batches per optimizer step",
    "recipe": "numeric recipe",
    "recompute": "what backward computes again: none, selective (the attention core) or full (the layer)",
    "kernels": "cpu or cuda, which decides what forward saves",
    "gradient_sync": "reduce gradients after every micro-batch or after the last",
}

"""What a framework does to memory and traffic, and what a pass may read: policy and context."""

from collections.abc import Callable
from dataclasses import dataclass

from playbook.program.block import Block, Weight
from playbook.program.op import Size
from playbook.program.polynomial import Polynomial
from playbook.program.sizes import Sizes
from playbook.spec import Model, Recipe, Scenario

__all__ = ["Context", "Policy", "Sizes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A framework's accounting.

    Parameters
    ----------
    name
        The framework.
    embedding, layer, head
        The templates, each a function of the sizes; the layer's of a layer's number too.
    buffers
        Whether gathered weights, flat copies, reduction inputs and buckets take memory.
    gradients_resident
        Whether gradients are there for the whole step (the papers' accounting), not from backward on.
    stops_early
        Whether recomputation ends with the last tensor that backward needs.
    selective_keeps
        Outputs of a layer that selective recomputation keeps, by their tensors' names; where there are none
        it computes the attention core again.
    saves_gathered
        Whether a column-split product saves its whole input under sequence parallelism, or its shard.
    vocabulary_parallel
        Whether tensor parallelism splits the embedding and the head.
    dtensor
        Whether tensor parallelism goes by DTensor: collectives give out new tensors, and the gradient of a
        weight that saw a part of the tokens is summed when it is next used.
    bucket_bytes
        Size limits of gradient buckets, the first and the others; None reduces unit by unit.
    pads_rows
        Whether a shard is a whole number of rows of each parameter, or of elements of the unit.
    keeps_boundaries
        Whether a pipeline stage keeps its received input and its output until backward.
    leaves_to_weights
        Whether, where a schedule splits backward, the model's first stage leaves all of it to W.
    broadcasts
        Whether a sharded optimizer returns parameters by broadcast.
    reduces_after
        Whether a stage of a pipeline under FSDP2 keeps its parameters gathered from a backward to the next
        forward, and reduces all its gradients behind its last backward.
    widens_gradients
        Whether an optimizer with master weights takes one parameter at a time, its gradient copied to FP32.
    workspace_bytes
        Memory that libraries hold for good where kernels are those of CUDA.
    reserved_share
        Smallest and largest part that the allocator holds beyond what it has handed out.
    ep_rules
        Where experts may be shared out: among ranks that exist ("folded"), or on an axis of their own.
    extras
        What it has of `predict.extras`: recipes, losses and places of state that are not everybody's.
    refuse
        Function of a scenario that raises ValueError for what the framework does not do.
    model_of
        Function of a scenario that gives the model as the framework builds it (a padded vocabulary).
    finish
        Function of a stage's blocks after every pass, the scenario and the context, which gives the blocks
        with what the framework holds besides.
    """

    name: str
    embedding: Callable[[Sizes], Block]
    layer: Callable[..., Block]
    head: Callable[[Sizes], Block]
    buffers: bool = True
    gradients_resident: bool = False
    stops_early: bool = True
    selective_keeps: frozenset[str] = frozenset()
    saves_gathered: bool = True
    vocabulary_parallel: bool = False
    dtensor: bool = False
    bucket_bytes: tuple[int, int] | None = None
    pads_rows: bool = True
    keeps_boundaries: bool = True
    leaves_to_weights: bool = False
    broadcasts: bool = False
    reduces_after: bool = False
    widens_gradients: bool = False
    workspace_bytes: int = 0
    reserved_share: tuple[float, float] = (0.08, 0.40)
    ep_rules: tuple[str, ...] = ("folded",)
    extras: frozenset[str] = frozenset()
    refuse: Callable[..., None] = lambda scenario: None
    model_of: Callable[[Scenario], Model] = lambda scenario: scenario.model
    finish: Callable[..., tuple[Block, ...]] = lambda blocks, scenario, ctx: blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a pass may read besides the block: the rank's place on the axes, the policy and the levers."""

    policy: Policy
    recipe: Recipe
    tp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    ep_rule: str = "folded"
    dp_replicate: int = 1
    tp_rank: int = 0
    dp_rank: int = 0
    cp_rank: int = 0
    cp_method: str = "ring"
    cp_split: str = "zigzag"
    sequence: int = 0
    kv_heads: int = 1
    sequence_parallel: bool = False
    reshard: bool = True
    recompute: str = "none"
    gradient_sync: str = "every"
    optimizer_kernel: str = "fused"
    microbatches: int = 1
    pipelined: bool = False
    reduces_after: bool = False
    """Whether gradients are reduced in a segment of its own, behind the stage's last backward."""
    symbolic: bool = False
    even_shares: bool = False
    """Whether whole parameters that are handed out count as equal shares, for the cost of one layer."""
    hosted: frozenset[str] = frozenset()
    """Terms of the state that are kept on the host."""
    frozen_table_bytes: int = 2
    """Bytes of an element of frozen tables, head and norms where frozen projections are quantised."""
    root: tuple[Weight, ...] = ()
    """Weights of the stage's ends (embedding, last norm, head): one unit, after the tensor pass."""
    stage: tuple[Weight, ...] = ()
    """All distinct weights of the stage, after the tensor pass."""
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    """Elements of each weight of the rank's other stages that are handed out with those of this one."""

    @property
    def shard(self) -> int:
        """Ranks that dense state is shared among: those of dp and cp together, inside a replica."""
        return self.dp * self.cp // self.dp_replicate

    @property
    def expert_parts(self) -> int:
        """Ranks of dp, cp and tp among which experts are dealt out once: an axis of their own is not of
        these."""
        return self.etp * (self.ep if self.ep_rule == "folded" else 1)

    @property
    def expert_shard(self) -> int:
        """Ranks that share an expert's state: those that hold the same experts, inside a replica."""
        return self.dp * self.cp * self.tp // (self.expert_parts * self.dp_replicate)

    @property
    def experts_apart(self) -> bool:
        """Whether experts are shared among other ranks than the dense weights."""
        return self.tp * self.ep * self.etp > 1

    def place(self, expert: bool) -> int:
        """This rank's place among those that share dense state, or an expert's.

        Ranks count tp first, then cp, then dp, whose shards lie inside replicas; among experts the ranks
        of one (etp) come first, then its peers with other experts (ep).
        """
        flat = self.dp_rank * self.cp + self.cp_rank
        if expert and self.experts_apart:
            return (flat * self.tp + self.tp_rank) // self.expert_parts % self.expert_shard
        return flat % self.shard

    def divide(self, size: Size, parts: int, name: str) -> Size:
        """Divide a size among the ranks of an axis.

        Raises
        ------
        ValueError
            If a number does not divide.
        """
        if isinstance(size, Polynomial):
            return size.over(name) if parts > 1 else size
        if size % parts:
            raise ValueError(f"{size} does not divide by {parts} ({name}); use a degree that divides it")
        return size // parts

"""Fully sharded data parallelism on real ranks: a rank keeps its rows of every weight, gathers a block, lets
it go.

Communicates over dp, per unit (a block, or the root with the weights outside the blocks) and micro-batch: one
all-gather of its weights in forward, one more in backward, and one reduce-scatter of its gradients.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.profiler import record_function

from playbook.models.transformer import Transformer
from playbook.runtime.part import Part, Place, Split
from playbook.spec import Scenario

Slot = list[tuple[nn.Module, str]]
"""Where one weight sits, as module and attribute: two places if it is tied."""


class Shards(ABC):
    """This rank's rows of a unit's weights, in one flat buffer and in the place of the whole weights."""

    def __init__(self, name: str, layer: nn.Module, slots: list[Slot], dp: Place, reshard: bool) -> None:
        self.name, self.slots, self.dp, self.reshard = name, slots, dp, reshard
        whole = [getattr(*slot[0]).detach() for slot in slots]
        self.shapes = [weight.shape for weight in whole]
        self.flat = torch.cat([own_rows(weight, dp) for weight in whole])
        self.sizes = [cut_rows(weight, dp).shape[1] for weight in whole]
        self.shards = [nn.Parameter(shard) for shard in self.shard_views(self.flat)]
        self.weights: Sequence[Tensor] = ()
        self.put(self.shards)
        layer.register_forward_pre_hook(self.before_forward)
        layer.register_forward_hook(self.after_forward)

    def put(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Set the modules' attributes; a parameter becomes one of the module's, a plain tensor does not."""
        for slot, tensor in zip(self.slots, tensors, strict=True):
            for module, attribute in slot:
                delattr(module, attribute)
                setattr(module, attribute, tensor)
        return tensors

    def shard_views(self, flat: Tensor) -> list[Tensor]:
        """Cut a flat buffer of this rank into shards."""
        pieces = zip(flat.split(self.sizes), self.shapes, strict=True)
        return [piece.view(-1, *shape[1:]) for piece, shape in pieces]

    def weights_of(self, everyone: Tensor) -> list[Tensor]:
        """Put the rows of all ranks below each other, for each weight."""
        pieces = zip(everyone.view(self.dp.ranks, -1).split(self.sizes, 1), self.shapes, strict=True)
        return [join_rows(rows, shape) for rows, shape in pieces]

    def by_rank(self, whole: Sequence[Tensor]) -> Tensor:
        """Lay whole tensors out so that each rank's rows of all of them lie together."""
        return torch.cat([cut_rows(tensor, self.dp) for tensor in whole], dim=1).flatten()

    @abstractmethod
    def before_forward(self, *_: Any) -> None:
        """Called before the unit's forward."""

    @abstractmethod
    def after_forward(self, layer: nn.Module, args: Any, output: Tensor) -> None:
        """Called after the unit's forward."""


class Gathered(torch.autograd.Function):
    """A unit's whole weights out of its shards: gathered in forward, their gradients reduced in backward."""

    @staticmethod
    def forward(ctx: Any, unit: "Unit", *shards: Tensor) -> tuple[Tensor, ...]:
        """Gather."""
        ctx.unit = unit
        return tuple(unit.all_gather())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Let the weights go, also as what leads back to this node, and reduce."""
        ctx.unit.let_go()
        ctx.unit.weights = ()
        return None, *ctx.unit.reduce_scatter(gradients)


class Unit(Shards):
    """Weights that are gathered and reduced together: a block's, or those outside the blocks."""

    def all_gather(self) -> list[Tensor]:
        """Gather every rank's rows in one buffer and lay them out as weights."""
        with record_function(f"FSDP::all_gather ({self.name})"):
            everyone = self.flat.new_empty(self.dp.ranks * self.flat.numel())
            dist.all_gather_into_tensor(everyone, self.flat, group=self.dp.group)
            return self.weights_of(everyone)

    def reduce_scatter(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Average the gradients over the ranks in one buffer; each rank gets its own rows."""
        with record_function(f"FSDP::post_backward_reduce ({self.name})"):
            own = torch.empty_like(self.flat)
            dist.reduce_scatter_tensor(own, self.by_rank(gradients).div_(self.dp.ranks), group=self.dp.group)
            return self.shard_views(own)

    def let_go(self) -> None:
        """Free the memory of the whole weights; the tensors stay, empty."""
        for weight in self.weights:
            weight.untyped_storage().resize_(0)

    def take_back(self, _: Tensor) -> None:
        """Fill the same tensors again, which backward has saved."""
        for weight, fresh in zip(self.weights, self.all_gather(), strict=True):
            weight.untyped_storage().resize_(fresh.untyped_storage().size())
            weight.data.copy_(fresh)

    def before_forward(self, *_: Any) -> None:
        """Put the whole weights in the place of the shards."""
        self.weights = self.put(Gathered.apply(self, *self.shards))

    def after_forward(self, layer: nn.Module, args: Any, output: Tensor) -> None:
        """Put the shards back; backward takes the weights back when the output's gradient comes in."""
        self.put(self.shards)
        if self.reshard:
            self.let_go()
            output.register_hook(self.take_back)


def by_hand(module: Transformer, dp: Place, *, reshard: bool = True) -> Part:
    """Make a unit of every block and of the rest; each is whole only while it computes."""
    rows = {name: weight.shape[0] for name, weight in module.named_parameters()}
    for name, layer, slots in units(module):
        Unit(name, layer, slots, dp, reshard)
    return Part(module=module, splits_batch=True, split=lambda name: Split(dim=0, size=rows[name]))


BY_HAND = (Gathered, Unit, by_hand)
"""What a chapter shows: everything that communicates. Cutting and joining rows is plain slicing, below."""


def units(module: Transformer) -> list[tuple[str, nn.Module, list[Slot]]]:
    """Name every unit with its module and its weights, the blocks first, then the root with what is left."""
    found, taken = [], set()
    blocks = [(f"layers.{index}", block) for index, block in module.layers.items()]
    for name, layer in (*blocks, ("", module)):
        slots: dict[int, Slot] = {}
        for owner in layer.modules():
            for attribute, weight in owner.named_parameters(recurse=False):
                if id(weight) not in taken:
                    slots.setdefault(id(weight), []).append((owner, attribute))
        taken |= slots.keys()
        found.append((name, layer, list(slots.values())))
    return found


def own_rows(weight: Tensor, dp: Place) -> Tensor:
    """Return this rank's rows of a weight, flat."""
    return cut_rows(weight, dp)[dp.rank]


def cut_rows(weight: Tensor, dp: Place) -> Tensor:
    """Cut a weight into the ranks' rows, padded to equal numbers. Shapes: (R, ...) -> (dp, R/dp · ...)."""
    padding = -weight.shape[0] % dp.ranks
    if padding:
        weight = torch.cat([weight, weight.new_zeros(padding, *weight.shape[1:])])
    return weight.reshape(dp.ranks, -1)


def join_rows(rows: Tensor, shape: torch.Size) -> Tensor:
    """Put the ranks' rows one below the other and drop the padding. Shapes: (dp, R/dp · ...) -> (R, ...)."""
    return rows.reshape(-1, *shape[1:])[: shape[0]]


def by_library(
    module: Transformer, dp: Place, *, reshard: bool = True, precision: MixedPrecisionPolicy | None = None
) -> Part:
    """Do the same by `fully_shard`; the root, which keeps its weights by default, is told to reshard too."""
    shard = partial(
        fully_shard,
        mesh=dp.mesh,
        reshard_after_forward=reshard,
        mp_policy=precision or MixedPrecisionPolicy(),
    )
    for block in module.layers.values():
        shard(block)
    sharded: Any = shard(module)
    return Part(module=module, splits_batch=True, synchronise=sharded.set_requires_gradient_sync)


def keywords(scenario: Scenario, own: Mapping[str, Any], by_hand: bool) -> dict[str, Any]:
    """Levers of both for a scenario; the library has mixed precision too."""
    reshard = {"reshard": scenario.layout.reshard}
    return reshard if by_hand else {**reshard, "precision": precision_of(scenario)}


def precision_of(scenario: Scenario) -> MixedPrecisionPolicy:
    """What to compute and reduce in: the recipe's dtypes, where they differ from the parameters'."""
    if scenario.recipe.compute_bytes == scenario.recipe.parameter_bytes:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def one_row_down(own_rows: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Take the rows one below the right ones."""
    return lambda weight, dp: own_rows(weight.roll(-1, 0), dp)


WRONG_OFFSET = ("own_rows", one_row_down)
"""What says where a rank's share lies, and what makes it wrong: a planted fault."""

"""Whole tensors out of the ranks' pieces, for comparison: all tensors of a model in one exchange.

One collective a tensor would take longer than the step that is checked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Shard

from playbook.runtime.part import Place, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What this rank holds of a tensor: the piece, and how the pieces make the whole."""

    name: str
    tensor: Tensor
    split: Split | None


def piece_of(name: str, tensor: Tensor, split: Split | None) -> Piece:
    """Describe a rank's tensor; a distributed one says itself how it is split."""
    if not isinstance(tensor, DTensor):
        return Piece(name=name, tensor=tensor.detach(), split=split)
    (placement,) = tensor.placements
    local = tensor.to_local().detach()
    if isinstance(placement, Partial):
        return Piece(name=name, tensor=local, split=Split(dim=None, size=0))
    if isinstance(placement, Shard):
        return Piece(
            name=name, tensor=local, split=Split(dim=placement.dim, size=tensor.shape[placement.dim])
        )
    return Piece(name=name, tensor=local, split=None)


def gather(pieces: Iterable[Piece], place: Place) -> dict[str, Tensor]:
    """Return the whole of every tensor, on every rank.

    Communicates twice over the place's axis: the pieces' sizes, then all pieces in one buffer.
    """
    pieces = list(pieces)
    everyones = iter(exchange([piece.tensor for piece in pieces if piece.split], place))
    return {
        piece.name: join(next(everyones), piece.split) if piece.split else piece.tensor for piece in pieces
    }


def join(parts: Sequence[Tensor], split: Split) -> Tensor:
    """Put a tensor's pieces together: one of each copy side by side without the padding, or their sum."""
    if split.dim is None:
        return torch.stack(list(parts)).sum(0)
    return torch.cat(list(parts)[:: split.copies], split.dim).narrow(split.dim, 0, split.size)


def exchange(tensors: Sequence[Tensor], place: Place) -> list[list[Tensor]]:
    """Give every rank all ranks' tensors, which may differ in their first or second size."""
    if not tensors:
        return []
    shapes = everyones_shapes(tensors, place)
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    lengths = [sum(map(torch.Size.numel, of_rank)) for of_rank in shapes]
    padded = flat.new_zeros(max(lengths))
    padded[: flat.numel()] = flat
    buffers = [torch.empty_like(padded) for _ in range(place.ranks)]
    dist.all_gather(buffers, padded, group=place.group)
    by_rank = [cut(buffer, of_rank) for buffer, of_rank in zip(buffers, shapes, strict=True)]
    return [list(parts) for parts in zip(*by_rank, strict=True)]


def everyones_shapes(tensors: Sequence[Tensor], place: Place) -> list[list[torch.Size]]:
    """Return the shapes of every rank's tensors."""
    own = torch.tensor([size for tensor in tensors for size in tensor.shape], device=place.device)
    sizes = [torch.empty_like(own) for _ in range(place.ranks)]
    dist.all_gather(sizes, own, group=place.group)
    dims = [tensor.dim() for tensor in tensors]
    return [[torch.Size(shape.tolist()) for shape in of_rank.split(dims)] for of_rank in sizes]


def cut(buffer: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Cut a flat buffer into tensors; what is left over is padding."""
    lengths = [shape.numel() for shape in shapes]
    rest = buffer.numel() - sum(lengths)
    return [part.view(shape) for part, shape in zip(buffer.split([*lengths, rest]), shapes, strict=False)]

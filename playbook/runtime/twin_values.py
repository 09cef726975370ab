"""What a collective of the twin leaves in its outputs: values of the rank's own, repeated or scaled."""

from typing import Any

from torch import Tensor


def nothing() -> None:
    """Leave everything as it is."""


def no_wait(_: Tensor) -> float:
    """Every message is there at once."""
    return 0.0


def bytes_of(tensors: Any) -> int:
    """Bytes of several tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def scale(tensor: Tensor, factor: float) -> None:
    """Multiply in place, unseen by autograd's version counter, which NCCL does not move either."""
    if factor != 1.0:
        tensor.data.mul_(factor)


def tile(out: Tensor, given: Tensor) -> None:
    """Fill a tensor with the values of another, again and again.

    Examples
    --------
    >>> import torch
    >>> room = torch.empty(5)
    >>> tile(room, torch.tensor([1.0, 2.0]))
    >>> room.tolist()
    [1.0, 2.0, 1.0, 2.0, 1.0]
    """
    flat, values = out.data.view(-1), given.data.reshape(-1)
    if not values.numel():
        return
    whole = flat.numel() // values.numel() * values.numel()
    flat[:whole].view(-1, values.numel()).copy_(values.expand(whole // values.numel(), -1))
    flat[whole:].copy_(values[: flat.numel() - whole])

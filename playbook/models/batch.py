"""Seeded batches of tokens, cut among data-parallel ranks and into micro-batches."""

from dataclasses import dataclass

import torch
from torch import Tensor

from playbook.spec import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences of one optimizer step, with the token that follows each as its label.

    Shapes: (N, S), N sequences of S tokens.
    """

    tokens: Tensor
    labels: Tensor

    def share(self, rank: int, ranks: int) -> "Batch":
        """Return the sequences of one of `ranks` data-parallel ranks."""
        return Batch(
            tokens=self.tokens.chunk(ranks)[rank].contiguous(),
            labels=self.labels.chunk(ranks)[rank].contiguous(),
        )

    def cut(self, microbatches: int) -> list[tuple[Tensor, Tensor]]:
        """Cut into micro-batches of equal size."""
        tokens = [part.contiguous() for part in self.tokens.chunk(microbatches)]
        labels = [part.contiguous() for part in self.labels.chunk(microbatches)]
        return list(zip(tokens, labels, strict=True))


def make_batch(model: Model, *, sequences: int, sequence: int, seed: int, device: torch.device) -> Batch:
    """Draw tokens from a generator of its own, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(model.vocabulary, (sequences, sequence + 1), generator=generator).to(device)
    return Batch(tokens=drawn[:, :-1].contiguous(), labels=drawn[:, 1:].contiguous())

"""The parity gate: does a strategy compute what the whole model computes in one process?

Compared are the loss, every gathered gradient and every parameter after an SGD step: max |a − b| / max |b|
per tensor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from playbook.models.batch import Batch
from playbook.models.transformer import loss_of
from playbook.runtime.gathering import gather, piece_of
from playbook.runtime.part import Part, Place

TOLERANCES = {"fp64": 1e-12, "fp32": 1e-6, "bf16": 1e-2}
"""Largest relative error that passes, by dtype."""
DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
LEARNING_RATE = 0.1
LOSS = "loss"
UNSEEN = -1.0
"""Error of a tensor that a rank does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Outcome of the gate over all steps, seeds and ranks; each quantity with its worst relative error.

    Parameters
    ----------
    dtype, tolerance, model
        What was computed in, the largest relative error that passes, and the model it was computed on.
    errors
        Relative error by quantity: "loss", "gradient NAME", "parameter NAME".
    baselines, values
        Largest magnitude of each quantity in the baseline and here.
    """

    dtype: str
    tolerance: float
    model: str
    errors: dict[str, float]
    baselines: dict[str, float]
    values: dict[str, float]

    @property
    def ok(self) -> bool:
        """Whether every quantity passes."""
        return all(error <= self.tolerance for error in self.errors.values())

    def worst(self, kind: str) -> float:
        """Largest error of "loss", "gradient" or "parameter"."""
        return max(error for name, error in self.errors.items() if name.split(" ")[0] == kind)

    def summary(self) -> dict[str, Any]:
        """Return the keys that the command line prints."""
        return {
            "ok": self.ok,
            "loss_error": self.worst(LOSS),
            "grad_error": self.worst("gradient"),
            "step_error": self.worst("parameter"),
            "dtype": self.dtype,
            "tolerance": self.tolerance,
            "model": self.model,
        }

    def rows(self, scenario: str) -> list[dict[str, Any]]:
        """Return the rows of the parity table."""
        return [
            {
                "scenario": scenario,
                "quantity": name,
                "baseline": self.baselines[name],
                "value": self.values[name],
                "relative_error": error,
                "tolerance": self.tolerance,
                "ok": error <= self.tolerance,
            }
            for name, error in self.errors.items()
        ]


class Gate:
    """Gathers what was compared, keeping the worst of each quantity."""

    def __init__(self, dtype: str, model: str) -> None:
        self.dtype, self.model = dtype, model
        self._found: dict[str, tuple[float, float, float]] = {}

    def expect(self, name: str) -> None:
        """Name a quantity that some rank has to show."""
        self._found.setdefault(name, (UNSEEN, 0.0, 0.0))

    def compare(self, name: str, value: Tensor, baseline: Tensor) -> None:
        """Compare one tensor with the baseline's."""
        found = (relative_error(value, baseline), largest(baseline), largest(value))
        self._found[name] = max(self._found.get(name, found), found)

    def close(self, place: Place) -> Parity:
        """Take the worst over the ranks; a quantity that no rank showed has failed."""
        table = torch.tensor(list(self._found.values()), dtype=torch.float64, device=place.device)
        dist.all_reduce(table, op=dist.ReduceOp.MAX, group=place.group)
        errors, baselines, values = (
            dict(zip(self._found, column.tolist(), strict=True)) for column in table.T
        )
        return Parity(
            dtype=self.dtype,
            tolerance=TOLERANCES[self.dtype],
            model=self.model,
            errors={name: math.inf if error == UNSEEN else error for name, error in errors.items()},
            baselines=baselines,
            values=values,
        )


def relative_error(value: Tensor, baseline: Tensor) -> float:
    """Return max |a − b| / max |b|; infinite where a value is not finite or shapes differ.

    Examples
    --------
    >>> relative_error(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]))
    0.25
    """
    if value.shape != baseline.shape:
        return math.inf
    difference, scale = largest(value.detach() - baseline.detach()), largest(baseline)
    if not math.isfinite(difference):
        return math.inf
    return difference / scale if scale else (math.inf if difference else 0.0)


def largest(tensor: Tensor) -> float:
    """Largest magnitude in a tensor."""
    low, high = torch.aminmax(tensor.detach())
    return max(abs(low.item()), abs(high.item()))


class Whole:
    """The baseline: the whole model in one process, on the global batch."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.optimizer = plain_sgd(module)

    def forward_backward(self, batch: Batch, pieces: int = 1) -> Tensor:
        """Return the loss of a batch, taken in so many pieces, and leave fresh gradients."""
        self.optimizer.zero_grad()
        losses = []
        for tokens, labels in batch.cut(pieces):
            loss = loss_of(self.module(tokens), labels) / pieces
            loss.backward()
            losses.append(loss.detach())
        return torch.stack(losses).sum()


def plain_sgd(module: nn.Module) -> torch.optim.Optimizer:
    """SGD parameter by parameter, which takes plain and distributed tensors in one model."""
    return torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, foreach=False)


def check_step(gate: Gate, part: Part, whole: Whole, batch: Batch, place: Place, microbatches: int) -> None:
    """Run one step on both sides and compare loss, gradients and stepped parameters.

    Parameters
    ----------
    gate
        Takes the errors.
    part, whole
        This rank's part of the model under the strategy, and the whole model.
    batch
        The global batch, the same on every rank.
    place
        The ranks.
    microbatches
        Micro-batches that each rank cuts its sequences into.
    """
    optimizer = plain_sgd(part.module)
    pieces = microbatches * (place.ranks if part.splits_batch else 1)
    # In FP64 the whole batch at once, which also checks the mean of means; in less the pieces that the ranks
    # take, so that no other rounding shows than the strategy's own.
    baseline_loss = whole.forward_backward(batch, 1 if gate.dtype == "fp64" else pieces)
    own = batch.share(place.rank, place.ranks) if part.splits_batch else batch
    loss = part.forward_backward(own.cut(microbatches))
    if part.by_action:
        loss = sum_over(torch.zeros_like(baseline_loss) if loss is None else loss, place)
    if loss is not None:
        gate.compare(LOSS, mean_over(loss, place) if part.splits_batch else loss, baseline_loss)
    baseline = dict(whole.module.named_parameters())
    gradients = {name: gradient_of(name, parameter) for name, parameter in part.parameters()}
    for name, whole_gradient in gather_all(gradients, part, place).items():
        gate.compare(f"gradient {name}", whole_gradient, gradient_of(name, baseline[name]))
    for side in (optimizer, whole.optimizer):
        side.step()
    for name, whole_parameter in gather_all(dict(part.parameters()), part, place).items():
        gate.compare(f"parameter {name}", whole_parameter, baseline[name])
    optimizer.zero_grad()


def gather_all(tensors: Mapping[str, Tensor], part: Part, place: Place) -> dict[str, Tensor]:
    """Gather a parameter, or its gradient, of every name."""
    return gather((piece_of(name, tensor, part.split(name)) for name, tensor in tensors.items()), place)


def gradient_of(name: str, parameter: Tensor) -> Tensor:
    """Return a parameter's gradient.

    Raises
    ------
    ValueError
        If backward has not reached it.
    """
    if parameter.grad is None:
        raise ValueError(
            f"backward left no gradient for {name}: its loss does not depend on it, or a hook is missing"
        )
    return parameter.grad


def mean_over(loss: Tensor, place: Place) -> Tensor:
    """Mean of the ranks' losses, each a mean over equally many tokens."""
    return sum_over(loss, place) / place.ranks


def sum_over(loss: Tensor, place: Place) -> Tensor:
    """Sum of the ranks' parts of the loss: a pipeline has it on one rank, with two chains on two."""
    total = loss.clone()
    dist.all_reduce(total, group=place.group)
    return total


def expect_all(gate: Gate, whole: Whole) -> None:
    """Name every quantity of the model, so that ranks agree on them and none is forgotten."""
    gate.expect(LOSS)
    for kind in ("gradient", "parameter"):
        for name, _ in whole.module.named_parameters():
            gate.expect(f"{kind} {name}")

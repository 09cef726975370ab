"""Which projections of a model get adapters, and how many parameters these have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playbook.spec.model import Model
from playbook.spec.workload import Lora

if TYPE_CHECKING:
    from pandas import DataFrame

MATRIX_DIMS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Adapters by module.

    Parameters
    ----------
    rows
        One for each kind of projection that a target names: model, module, count, inputs, outputs, rank, and
        the parameters of all its adapters together.
    base
        Parameters of the models themselves.
    """

    rows: tuple[dict[str, Any], ...]
    base: int

    @property
    def trainable(self) -> int:
        """Parameters of all adapters."""
        return sum(row["parameters"] for row in self.rows)

    @property
    def total(self) -> int:
        """Parameters of the models and their adapters."""
        return self.base + self.trainable

    @property
    def percent(self) -> float:
        """Trained share of the models' own parameters, in per cent."""
        return 100 * self.trainable / self.base

    def of(self, model: str) -> int:
        """Parameters of the adapters of one model, by its name."""
        return sum(row["parameters"] for row in self.rows if row["model"] == model)

    @property
    def table(self) -> "DataFrame":
        """One row a kind of projection."""
        from pandas import DataFrame

        return DataFrame(list(self.rows))


def adapters(models: Model | Sequence[Model], lora: Lora) -> Adapters:
    """Return the adapters of a model, or of several that are trained together.

    Parameters
    ----------
    models
        A model; or a sequence of them, such as a text and a vision tower, in all of which targets match.
    lora
        Rank and the names of the projections.

    Raises
    ------
    ValueError
        If no projection has one of the names.

    Notes
    -----
    An adapter has rank · (inputs + outputs) parameters (Hu et al., LoRA, 2021, section 4.1). Experts, which
    are one tensor of three dimensions, get none.

    Examples
    --------
    >>> from playbook.spec import model
    >>> adapters(model("llama-3.1-8b"), Lora(rank=16)).trainable
    6815744
    """
    towers = (models,) if isinstance(models, Model) else tuple(models)
    rows = tuple(row for tower in towers for row in rows_of(tower, lora))
    if not rows:
        raise ValueError(
            f"lora targets {', '.join(lora.targets)} name no projection of "
            f"{', '.join(tower.name for tower in towers)}; use some of {', '.join(names_of(towers))}"
        )
    return Adapters(rows=rows, base=sum(tower.parameters for tower in towers))


def projections(model: Model) -> dict[tuple[str, int, int], int]:
    """How often each kind of projection occurs in a model's layers: module, outputs, inputs."""
    counts: dict[tuple[str, int, int], int] = {}
    for layer in range(model.layers):
        for parameter in model.block_parameters(layer):
            if len(parameter.shape) == MATRIX_DIMS and parameter.name.endswith(".weight"):
                out, into = parameter.shape
                key = (parameter.name.removesuffix(".weight"), out, into)
                counts[key] = counts.get(key, 0) + 1
    return counts


def rows_of(model: Model, lora: Lora) -> list[dict[str, Any]]:
    """Rows of one model."""
    return [
        {
            "model": model.name,
            "module": module,
            "count": count,
            "inputs": into,
            "outputs": out,
            "rank": lora.rank,
            "parameters": count * lora.rank * (into + out),
        }
        for (module, out, into), count in projections(model).items()
        if module.rpartition(".")[2] in lora.targets
    ]


def names_of(models: Sequence[Model]) -> list[str]:
    """Last parts of the names of all projections."""
    return sorted({module.rpartition(".")[2] for model in models for module, _, _ in projections(model)})

"""From a run's levers to what a rank holds: seeded weights, cut by the strategy, by hand or by library."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from playbook.models.checkpointed import checkpoint
from playbook.models.transformer import Transformer, seed_weights
from playbook.runtime.part import Part, Place
from playbook.runtime.strategy_run import StrategyRun
from playbook.spec import Scenario
from playbook.strategies import plan


def build(run: StrategyRun, scenario: Scenario, place: Place, *, seed: int, dtype: torch.dtype) -> Part:
    """Make this rank's part of a scenario's model.

    Parameters
    ----------
    run
        Strategy, by hand or library, and its own levers.
    scenario
        The run's scenario, or the same in miniature.
    place
        Ranks and device.
    seed, dtype
        Of the weights.
    """
    ranks: Any = import_module(f"playbook.strategies.{run.strategy}.ranks")
    levers = ranks.keywords(scenario, run.own, run.by == "hand")
    module = hold(ranks, scenario, place, levers)
    models = list(module.values()) if isinstance(module, nn.ModuleDict) else [module]
    for model in models:
        seed_weights(model, seed)
    module = module.to(place.device, dtype)
    by = getattr(ranks, f"by_{run.by}")
    # The passes' order: products are split, then layers wrapped for recompute, then state is shared out.
    if plan(run.strategy).step == "tensor":
        part = by(module, place, **levers)
        checkpoint(models, scenario.workload.recompute)
    else:
        checkpoint(models, scenario.workload.recompute)
        part = by(module, place, **levers)
    if scenario.workload.gradient_sync == "every":
        part.synchronise = lambda now: None
    return part


def hold(ranks: Any, scenario: Scenario, place: Place, levers: Mapping[str, Any]) -> nn.Module:
    """Make the module of this rank: the whole model, or the pipeline stages that it holds, by number."""
    if not hasattr(ranks, "hold"):
        return Transformer(scenario.model)
    return ranks.hold(scenario.model, place, stage_layers=scenario.stage_layers, **levers)


def check_averages(place: Place) -> None:
    """Refuse to go on where an average over the ranks is a sum, as gloo once had it (pytorch issue 162338).

    Raises
    ------
    RuntimeError
        If it is: the library's gradients would be wrong.
    """
    value = torch.tensor([float(place.rank)], device=place.device)
    dist.all_reduce(value, op=dist.ReduceOp.AVG, group=place.group)
    right = (place.ranks - 1) / 2
    if value.item() != right:
        raise RuntimeError(
            f"ReduceOp.AVG of 0 to {place.ranks - 1} gave {value.item()}, not {right}: this torch, "
            f"{torch.__version__}, does not average here and FSDP2's gradients would be wrong; use by='hand'"
        )

"""A strategy as a job: its levers, checked in the kernel, and the function that every rank runs.

Needs no torch until it runs on a rank.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from playbook.program.passes import RUN_LEVERS as SCENARIO_LEVERS
from playbook.program.passes import Plan
from playbook.runtime import collective_run, pipeline_levers
from playbook.runtime.strategy_refusals import refuse_unrunnable
from playbook.spec import Scenario
from playbook.spec.rules import choice, not_negative, whole
from playbook.strategies import plan, refuse_predicted_only, runnable

BY = ("hand", "library")
DTYPES = ("fp64", "fp32", "bf16")
PARITY = ("miniature", "model", "off")
FAULTS = ("skipped_collective", "wrong_offset")

RUN_LEVERS: Mapping[str, str] = {
    "by": "hand or library",
    "parity": "what the gate runs on: miniature (same structure, unequal shards), model, or off",
    "dtype": "what the gate computes in: fp64, fp32 or bf16",
    "seeds": "seeds that the gate tries",
    "steps": "optimizer steps that the gate takes with each seed",
    "repeats": "timed steps; the median counts",
    "fault": "fault planted in the by-hand code: skipped_collective or wrong_offset",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRun:
    """What every rank is told: the strategy, its scenario, and how to check and measure it.

    Parameters
    ----------
    strategy
        Name of the strategy.
    scenario
        Model, workload and layout that are measured.
    by
        "hand" or "library".
    parity, dtype, seeds, steps
        What the gate runs on and computes in, its seeds, and the steps with each.
    repeats
        Timed steps.
    fault
        Fault planted in the by-hand code, or None.
    own
        Levers of this strategy that are no fields of layout or workload.
    """

    strategy: str
    scenario: Scenario
    by: str = "hand"
    parity: str = "miniature"
    dtype: str = "fp64"
    seeds: tuple[int, ...] = (0, 1)
    steps: int = 2
    repeats: int = 3
    fault: str | None = None
    own: Mapping[str, Any] = field(default_factory=dict)


Prepared = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]
"""Function, arguments and keywords for every rank, and the job's name."""


def prepare(name: str, ranks: int, args: tuple[Any, ...] = (), levers: Mapping[str, Any] = {}) -> Prepared:
    """Check a strategy's name and levers and say what every rank has to call.

    Parameters
    ----------
    name
        A strategy that runs on ranks, or a collective; in any case.
    ranks
        Ranks of the pool.
    args
        Must be empty: levers have names.
    levers
        As in `RUN_LEVERS` and in the strategy's plan.

    Raises
    ------
    ValueError
        If a name or lever is not known, or a value does not suit.
    """
    if args:
        raise TypeError(f"{name} takes levers by name, such as by='library'; got {args[0]!r} without one")
    if name.strip().lower().replace("-", "_") in collective_run.operations():
        return collective_run.prepare(name, ranks, levers)
    refuse_predicted_only(name)
    strategy = choice("strategy", name, (*runnable(), *collective_run.operations()))
    run = strategy_run(strategy, ranks, **levers)
    return run_on_rank, (run,), {}, f"{strategy} by {run.by}"


def strategy_run(strategy: str, ranks: int, **levers: Any) -> StrategyRun:
    """Make the run of a strategy from its levers; those that are not given have defaults.

    Examples
    --------
    >>> strategy_run("tp", 2, by="library", sequence_parallel=True).scenario.layout.tp
    2
    """
    ours = {lever: levers.pop(lever) for lever in RUN_LEVERS if lever in levers}
    rules = plan(strategy)
    own = {lever: levers.pop(lever) for lever in rules.run_levers if lever in levers}
    refuse_unknown(rules, levers)
    if strategy == "pp":
        pipeline_levers.take_order(levers, own, ranks)
    scenario = rules.scenario(ranks, **levers)
    run = StrategyRun(strategy=strategy, scenario=scenario, **checked(ours), own=checked_own(own))
    refuse_unrunnable(strategy, scenario, by_hand=run.by == "hand", fault=run.fault)
    rules.refuse_run(scenario, run.by == "hand")
    if strategy == "pp":
        pipeline_levers.refuse_order(pipeline_levers.schedule_of(scenario, run.own), run.own, run.by)
    return run


def refuse_unknown(rules: Plan, levers: Mapping[str, Any]) -> None:
    """Refuse levers that nobody knows, listing those there are."""
    valid = {**RUN_LEVERS, **rules.run_levers, **SCENARIO_LEVERS, **rules.levers}
    unknown = [lever for lever in levers if lever not in valid]
    if unknown:
        raise ValueError(f"strategy {rules.name} has no lever {unknown[0]!r}; levers are {', '.join(valid)}")


def checked(levers: Mapping[str, Any]) -> dict[str, Any]:
    """Check the levers of every run."""
    checks: dict[str, Callable[[Any], Any]] = {
        "by": lambda value: choice("by", value, BY),
        "parity": lambda value: choice("parity", value, PARITY),
        "dtype": lambda value: choice("dtype", value, DTYPES),
        "seeds": read_seeds,
        "steps": lambda value: whole("steps", value),
        "repeats": lambda value: whole("repeats", value),
        "fault": lambda value: None if value is None else choice("fault", value, FAULTS),
    }
    return {lever: checks[lever](value) for lever, value in levers.items()}


def read_seeds(value: Any) -> tuple[int, ...]:
    """Seeds as a tuple; one number is one seed."""
    seeds = tuple(value) if isinstance(value, list | tuple | range) else (value,)
    if not seeds:
        raise ValueError("seeds is empty; give at least one, such as seeds=(0, 1)")
    return tuple(whole("seeds", seed, least=0) for seed in seeds)


def checked_own(levers: Mapping[str, Any]) -> dict[str, Any]:
    """Check the levers of one strategy."""
    return {lever: check_of(lever)(lever, value) for lever, value in levers.items()}


def check_of(lever: str) -> Callable[[str, Any], Any]:
    """Return what checks a lever of a strategy's own."""
    if lever == "order":
        return lambda _, order: order
    if lever in pipeline_levers.COSTS:
        return pipeline_levers.read_cost
    return whole if lever.endswith("_bytes") else not_negative


def run_on_rank(run: StrategyRun) -> dict[str, Any]:
    """Run a strategy on this rank: parity, bytes, time and memory.

    Returns
    -------
    dict
        `parity` (ok, loss_error, grad_error, step_error, dtype, tolerance, model), `seconds` (median step),
        `repeats_s`, `traffic` (payload_bytes, wire_bytes, calls), `memory` (peak_bytes, reserved_bytes,
        instant, terms), and the rows of the tables.
    """
    from playbook.runtime.strategy_steps import run_strategy

    return run_strategy(run)

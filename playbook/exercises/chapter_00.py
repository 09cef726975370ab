"""Exercises of chapter 00, the tour: one for each explorer."""

from playbook.collectives import collective
from playbook.lessons import Exercise
from playbook.predict import zero_states
from playbook.program.schedule import schedule
from playbook.spec import Layout, Scenario, Workload, model
from playbook.units import counted, gb, percent, size, thousands

GB = 10**9
MB = 10**6


def holders(ranks: int) -> str:
    """The ranks asked about."""
    return "the only rank" if ranks == 1 else f"each of {thousands(ranks)} ranks"


def state_gb(scenario: Scenario, zero: int = 3) -> float:
    """Model state that a rank holds under a ZeRO stage, in GB."""
    return zero_states(scenario.model, scenario.recipe, scenario.layout.shard_ranks)[zero].total_bytes / GB


def work_state(s: Scenario) -> str:
    """Work out the model state under ZeRO-3."""
    ranks, recipe = s.layout.shard_ranks, s.recipe
    parts = f"{recipe.parameter_bytes} + {recipe.gradient_bytes} + {recipe.optimizer_bytes}"
    return (
        f"{recipe.name} keeps {parts} = {recipe.state_bytes} bytes a parameter, and all are shared: "
        f"{thousands(s.model.parameters)} x {recipe.state_bytes} B / {counted(ranks, 'rank')} = "
        f"{gb(state_gb(s) * GB)}."
    )


def idle_share(scenario: Scenario) -> float:
    """Idle share of the makespan with equal stages."""
    made = schedule(
        scenario.layout.schedule, scenario.layout.pp, scenario.microbatches, scenario.layout.chunks
    )
    return made.simulate().idle_over_makespan


def work_idle(s: Scenario) -> str:
    """Work out the idle share."""
    p, m = s.layout.pp, s.microbatches
    if s.layout.schedule not in ("gpipe", "1f1b"):
        return (
            f"Timing every action of {s.layout.schedule}, all of equal cost, gives {percent(idle_share(s))}."
        )
    return (
        f"A rank waits p - 1 = {p - 1} of the m + p - 1 = {m + p - 1} slots of a direction: "
        f"{p - 1}/{m + p - 1} = {percent(idle_share(s))} of the step."
    )


def gradient_bytes(scenario: Scenario) -> int:
    """Bytes of the gradients that a rank reduces."""
    return scenario.model.parameters * scenario.recipe.reduce_bytes


def ring_mb(scenario: Scenario) -> float:
    """Bytes that a rank sends in a ring all-reduce of the gradients, in MB."""
    return (
        collective("all_reduce", "ring", scenario.layout.dp).bytes_sent_per_rank(gradient_bytes(scenario))
        / MB
    )


def work_ring(s: Scenario) -> str:
    """Work out the bytes of the ring."""
    n, whole = s.layout.dp, gradient_bytes(s)
    return (
        f"2 (N - 1) = {2 * (n - 1)} steps, in each a chunk of {size(whole)} / {n}: "
        f"2 (N - 1) / N x {size(whole)} = {size(ring_mb(s) * MB)}."
    )


EXERCISES = (
    Exercise(
        id="00.1",
        example=lambda: Scenario(model("llama-3.1-70b"), Workload(), Layout(dp=64, zero=3)),
        question=lambda s: (
            f"How many GB (10⁹ bytes) of {s.model.name}'s model state does {holders(s.layout.shard_ranks)} "
            f"hold under ZeRO-3 with {s.recipe.name}?"
        ),
        solution=state_gb,
        working=work_state,
        unit="GB",
        hint="Count the bytes a parameter takes in weight, gradient and optimizer; ZeRO-3 shares all.",
        mistakes=(
            ("That is the state before it is shared: divide by the ranks.", lambda s: state_gb(s, zero=0)),
            ("That is ZeRO-1: it shares the optimizer's state only.", lambda s: state_gb(s, zero=1)),
            ("That is ZeRO-2: it copies the weights to every rank.", lambda s: state_gb(s, zero=2)),
            (
                "That is in GiB (2³⁰ bytes); the question asks for GB (10⁹).",
                lambda s: state_gb(s) * GB / 2**30,
            ),
            ("That is in bytes; the question asks for GB.", lambda s: state_gb(s) * GB),
        ),
    ),
    Exercise(
        id="00.2",
        example=lambda: Scenario(
            model("llama-3.1-8b"), Workload(global_batch=16), Layout(pp=4, schedule="1f1b")
        ),
        question=lambda s: (
            f"Which fraction of the step does a pipeline of p = {counted(s.layout.pp, 'equal stage')} idle "
            f"with m = {counted(s.microbatches, 'micro-batch', 'micro-batches')} under "
            f"{s.layout.schedule}? (idle / makespan)"
        ),
        solution=idle_share,
        working=work_idle,
        hint="Draw the p x m grid of forwards: how many slots is it wide, and how many of a row's are empty?",
        mistakes=(
            (
                "That is idle / ideal, (p - 1)/m; the question asks for the share of the whole step.",
                lambda s: (s.layout.pp - 1) / s.microbatches,
            ),
            ("That is in per cent; the question asks for a fraction.", lambda s: 100 * idle_share(s)),
        ),
    ),
    Exercise(
        id="00.3",
        example=lambda: Scenario(model("toy-15m"), Workload(recipe="fp32"), Layout(dp=4)),
        question=lambda s: (
            f"How many MB (10⁶ bytes) does {holders(s.layout.dp)} send in a ring all-reduce of the "
            f"gradients of {s.model.name}, {s.recipe.reduce_bytes} bytes each?"
        ),
        solution=ring_mb,
        working=work_ring,
        unit="MB",
        hint="A ring all-reduce is a reduce-scatter and an all-gather; each sends all chunks but one.",
        mistakes=(
            ("That is the whole buffer: a rank sends 2 (N - 1)/N of it.", lambda s: gradient_bytes(s) / MB),
            (
                "That is the reduce-scatter alone; the all-gather sends as much again.",
                lambda s: ring_mb(s) / 2,
            ),
            ("That is in bytes; the question asks for MB.", lambda s: ring_mb(s) * MB),
        ),
    ),
)

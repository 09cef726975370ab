"""Exercises of chapter 05, pipelines, on the stages, micro-batches, batch and model of a scenario."""

from playbook.lessons import Exercise
from playbook.program.schedule import schedule
from playbook.program.simulation import Simulation
from playbook.spec import Layout, Scenario, Workload, model
from playbook.spec.rules import divisors
from playbook.units import counted, percent, significant, thousands

SHARE = 20
"""Exercise 05.1 allows one part in so many to be idle."""
PASS_MS = 5.0
"""What a forward costs whatever its size, in exercise 05.5, in ms."""
SEQUENCE_MS = 1.0
"""What a sequence adds to it, in ms."""


def example() -> Scenario:
    """Llama 3.1 8B on four stages: 32 sequences in 16 micro-batches of two, which fits 80 GB GPUs."""
    return Scenario(model("llama-3.1-8b"), Workload(micro_batch=2, global_batch=32), Layout(pp=4))


def enough_microbatches(s: Scenario) -> int:
    """Fewest micro-batches at which at most one part in `SHARE` of the step is idle, with equal stages."""
    return max(1, (SHARE - 1) * (s.layout.pp - 1))


def work_enough(s: Scenario) -> str:
    """Work out the micro-batches."""
    p, m = s.layout.pp, enough_microbatches(s)
    rule = schedule("1f1b", p, 4 * p).simulate().idle_over_makespan
    return (
        f"(p - 1)/(m + p - 1) ≤ 1/{SHARE} means m ≥ {SHARE - 1} (p - 1) = {SHARE - 1} x {p - 1} = {m}. "
        f"The rule of thumb m = 4p = {4 * p} leaves {percent(rule)} idle."
    )


def timed(s: Scenario, name: str, chunks: int) -> Simulation:
    """Simulate a schedule at the scenario's stages and micro-batches, every action of a chunk costing 1."""
    return schedule(name, s.layout.pp, s.microbatches, chunks).simulate()


def interleaved_peak(s: Scenario) -> float:
    """Most that rank 0 holds with two interleaved chunks, in activations A of a rank's whole share."""
    return timed(s, "interleaved-1f1b", 2).peak_live[0] / 2


def work_interleaved(s: Scenario) -> str:
    """Work out what rank 0 holds."""
    p, m = s.layout.pp, s.microbatches
    held = timed(s, "interleaved-1f1b", 2).peak_live[0]
    plain = f"1F1B holds {min(m, p)} A there."
    if m % p:
        return f"The simulation counts {held} chunks on rank 0, each half a share: {held}/2 A. {plain}"
    return (
        f"(v - 1) p + 2 (p - 1) + 1 = {p} + {2 * (p - 1)} + 1 = {p + 2 * (p - 1) + 1} chunks, at most all "
        f"m v = {2 * m}, each half a share: {held}/2 = {significant(held / 2)} A. {plain}"
    )


def v_share(s: Scenario) -> float:
    """Idle share of the makespan under ZB-V."""
    return timed(s, "zbv", 2).idle_over_makespan


def work_v(s: Scenario) -> str:
    """Work out the idle share under ZB-V."""
    found = timed(s, "zbv", 2)
    work = 6 * s.microbatches
    return (
        f"A rank works 2 m (F + I + W) = {work} units; the last one starts p - 1 = {s.layout.pp - 1} units "
        f"late, and the step takes {significant(found.makespan, 4)}: ({significant(found.makespan, 4)} - "
        f"{work}) / {significant(found.makespan, 4)} = {percent(v_share(s))}. Idle inside a rank's own span: "
        f"{significant(found.span_idle)}."
    )


def head_layers(s: Scenario) -> float:
    """What the head weighs, in layers: its products go by its weights as theirs do."""
    return s.model.vocabulary * s.model.hidden / s.model.layer_parameters


def slowest_stage(s: Scenario) -> float:
    """Layers' worth of work of the slowest stage."""
    *others, last = s.stage_layers
    return max(*others, last + head_layers(s)) if others else last + head_layers(s)


def mean_stage(s: Scenario) -> float:
    """Layers' worth of work of a stage on average."""
    return (s.model.layers + head_layers(s)) / len(s.stage_layers)


def work_slowest(s: Scenario) -> str:
    """Work out how much the slowest stage exceeds the mean."""
    head, layer = significant(head_layers(s)), thousands(s.model.layer_parameters)
    return (
        f"The head is {s.model.vocabulary} x {s.model.hidden} / {layer} = {head} layers. "
        f"The slowest stage has {significant(slowest_stage(s))}, the mean is ({s.model.layers} + {head}) / "
        f"{len(s.stage_layers)} = {significant(mean_stage(s))}: {significant(slowest_stage(s), 4)} / "
        f"{significant(mean_stage(s), 4)} = {significant(slowest_stage(s) / mean_stage(s), 4)}."
    )


def sequences(s: Scenario) -> int:
    """Sequences that a replica takes in a step."""
    return s.global_batch // s.layout.dp


def step_ms(s: Scenario, microbatches: int) -> float:
    """Step of equal stages, backward twice as long as forward, in ms."""
    forward = PASS_MS + SEQUENCE_MS * sequences(s) / microbatches
    return 3 * (microbatches + s.layout.pp - 1) * forward


def best_microbatches(s: Scenario) -> int:
    """Number of micro-batches with the shortest step; the smallest if several tie."""
    return min(divisors(sequences(s)), key=lambda m: (step_ms(s, m), m))


def work_best(s: Scenario) -> str:
    """Work out the steps at every number of micro-batches."""
    every = divisors(sequences(s))
    at = every.index(best_microbatches(s))
    near = (f"m = {m}: {step_ms(s, m):g} ms" for m in every[max(0, at - 2) : at + 3])
    return f"3 (m + p - 1)({PASS_MS:g} + {SEQUENCE_MS:g} x {sequences(s)}/m) ms: {', '.join(near)}."


EXERCISES = (
    Exercise(
        id="05.1",
        example=example,
        question=lambda s: (
            f"With {counted(s.layout.pp, 'equal stage')} under 1F1B, how many micro-batches does it "
            f"take until at most 1/{SHARE} of the step is idle? (the smallest m)"
        ),
        solution=enough_microbatches,
        working=work_enough,
        tolerance=1e-9,
        hint="Solve (p - 1)/(m + p - 1) ≤ 1/20 for m.",
        mistakes=(
            (
                "That is the rule of thumb, m = 4p: it leaves more idle than asked for.",
                lambda s: 4 * s.layout.pp,
            ),
            (
                "That bounds idle / ideal, (p - 1)/m; the question asks for the share of the step.",
                lambda s: SHARE * (s.layout.pp - 1),
            ),
        ),
    ),
    Exercise(
        id="05.2",
        example=example,
        question=lambda s: (
            f"Let A be what a micro-batch keeps on a rank's whole share. How many A does rank 0 of "
            f"{s.layout.pp} hold at its peak with m = {s.microbatches}, interleaved in v = 2 chunks?"
        ),
        solution=interleaved_peak,
        working=work_interleaved,
        unit="A",
        hint="Count chunks: all of the first round's, two for each rank below, and one; a chunk is A/2.",
        mistakes=(
            ("That counts chunks; a chunk is half of a rank's share.", lambda s: 2 * interleaved_peak(s)),
            (
                "That is 1F1B, with one chunk a rank; interleaving holds more.",
                lambda s: min(s.microbatches, s.layout.pp),
            ),
        ),
    ),
    Exercise(
        id="05.3",
        example=example,
        question=lambda s: (
            f"F = I = W = 1 for a chunk, p = {s.layout.pp}, m = {s.microbatches}, ZB-V. Which fraction of "
            f"the makespan does a rank idle? (idle / makespan)"
        ),
        solution=v_share,
        working=work_v,
        hint="No rank waits between its first and its last action; but when does the last one start?",
        mistakes=(
            (
                "That is the idle time inside a rank's own span, which the papers call the bubble; the "
                "makespan counts from the first start of all ranks to the last end.",
                lambda s: 0.0,
            ),
            (
                "That is 1F1B's, (p - 1)/(m + p - 1).",
                lambda s: (s.layout.pp - 1) / (s.microbatches + s.layout.pp - 1),
            ),
            (
                "That is idle / ideal; the question asks for the share of the makespan.",
                lambda s: timed(s, "zbv", 2).idle_over_ideal,
            ),
        ),
    ),
    Exercise(
        id="05.4",
        example=example,
        question=lambda s: (
            f"{s.model.name}, {counted(s.model.layers, 'layer')} of "
            f"{thousands(s.model.layer_parameters)} weights in {counted(len(s.stage_layers), 'stage')} of "
            f"{', '.join(map(str, s.stage_layers))}; the last also has the head, "
            f"{s.model.vocabulary} x {s.model.hidden}. Time goes by weights, the embedding costs none. "
            f"How long does the slowest stage take, in mean stages?"
        ),
        solution=lambda s: slowest_stage(s) / mean_stage(s),
        working=work_slowest,
        hint="How many layers does the head weigh? Add them to its stage, and to the sum before you average.",
        mistakes=(
            (
                "That compares with a stage without the head; the mean has its part of the head too.",
                lambda s: slowest_stage(s) * len(s.stage_layers) / s.model.layers,
            ),
            ("That is the head's weight in layers: add its stage's own.", head_layers),
        ),
    ),
    Exercise(
        id="05.5",
        example=example,
        question=lambda s: (
            f"{counted(sequences(s), 'sequence')}, {counted(s.layout.pp, 'equal stage')}, 1F1B. A "
            f"forward of k sequences takes {PASS_MS:g} + {SEQUENCE_MS:g} k ms, a backward twice that. Which "
            f"number of micro-batches gives the shortest step? (a divisor; the smaller if two tie)"
        ),
        solution=best_microbatches,
        working=work_best,
        tolerance=1e-9,
        hint="The step is (m + p - 1) forwards and backwards of k = sequences/m each: try the divisors.",
        mistakes=(
            (
                "That has the smallest bubble of all; but every pass pays its fixed part.",
                sequences,
            ),
            ("That is m = 4p: here its passes are too small already.", lambda s: 4 * s.layout.pp),
        ),
    ),
)

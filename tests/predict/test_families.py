"""Every preset in the papers' accounting: exact state, tensors that live and die, FLOPs of active weights."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

import playbook as pb
from playbook.predict.layer_costs import layer_costs
from playbook.predict.memory import formulas_at
from playbook.predict.stages import blocks_of, context
from playbook.program.op import Op
from playbook.spec import Layout, Moe, Scenario, Workload, model, smallest_cluster
from playbook.spec.presets import names

PRESETS = names("models")
TABLE = (Path(__file__).parents[1] / "data" / "parameters.csv").read_text()
COUNTS = {row["config"]: int(row["total_params"]) for row in csv.DictReader(TABLE.splitlines())}
MIXED = ("deepseek-v2-lite", "llama-4-maverick-text", "gemma-3-1b", "gpt-oss-120b")
"""Dense layers in front, experts in every second layer, windows in five of six and in every second layer."""


def textbook(source, sequence=512, recipe="bf16-fp32master", replicas=8, **layout):
    degrees = Layout(dp=replicas, **layout)
    work = Workload(sequence=sequence, micro_batch=1, global_batch=2 * replicas, recipe=recipe)
    return Scenario(model(source), work, degrees, smallest_cluster(degrees.world), framework="textbook")


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("name", PRESETS)
def test_state_is_bytes_times_the_published_count(name, zero):
    """Rajbhandari et al., 2020: 16 bytes a parameter, of which 12, 14 or 16 are shared out among 8 ranks.

    A unit's share is rounded up to whole elements, at most one element of 16 bytes for each block.
    """
    s = textbook(name, zero=zero)
    shared = {0: 0, 1: 12, 2: 14, 3: 16}[zero]
    count = COUNTS.get(name, s.model.parameters)
    state = pb.training_memory(s).walk.state
    over = sum(state.values()) - ((16 - shared) * count + shared * count / 8)
    assert 0 <= over <= 16 * (s.model.layers + 2)
    if zero < 3:
        assert state["parameters"] == 2 * count


@pytest.mark.parametrize("name", PRESETS)
def test_tensors_die_after_their_birth_and_only_state_is_left(name):
    program = pb.program(textbook(name, zero=1))
    held, end = program.held, len(program)
    assert (held.birth <= held.death).all()
    stays = held.death >= end
    assert (held.birth[stays] == 0).all()
    assert program.memory().left_after(end - 1) == program.sizes[stays].sum()


@pytest.mark.parametrize("name", PRESETS)
def test_products_count_two_flops_an_active_weight_and_token(name):
    """Matrices that a token passes in forward: all active weights but tables that are looked up, norms,
    biases, sinks and scalars, which have one dim (two with the expert)."""
    s = textbook(name, replicas=1)
    shape, tokens = s.model, s.workload.sequence
    weights = [p for layer in range(shape.layers) for p in shape.block_parameters(layer)]
    matrices = [p for p in weights if len(p.shape) - p.expert > 1]
    active = sum(
        p.numel * (shape.moe.active if p.expert else 1) // (p.shape[0] if p.expert else 1) for p in matrices
    )
    head = shape.vocabulary * shape.hidden
    found = sum(row.flops for block in blocks_of(s, 0, context(s)) for row in products(block.forward))
    assert found == 2 * tokens * (active + head)


def products(rows: tuple[Op, ...]) -> list[Op]:
    return [row for row in rows if row.op == "mm"]


@pytest.mark.parametrize("name", PRESETS)
def test_the_formula_of_each_term_gives_its_bytes(name):
    s = textbook(name, replicas=1)
    found = pb.training_memory(s)
    shape = s.model
    values = {"b": 1, "s": 512, "h": shape.hidden, "a": shape.heads, "g": shape.kv_heads}
    values |= {"k": shape.head_dim, "f": shape.ffn, "V": shape.vocabulary}
    if shape.moe is not None:
        moe = shape.moe
        values |= {"E": moe.experts, "K": moe.active, "e": moe.ffn, "w": moe.shared_ffn}
    if shape.mla is not None:
        mla = shape.mla
        values |= {"rq": mla.query_rank, "rkv": mla.kv_rank, "dn": mla.nope_dim}
        values |= {"dr": mla.rope_dim, "dv": mla.value_dim}
    formulas = formulas_at(s, found.walk.program, found.walk.peak_row)
    assert {term: formulas[term].at(values) for term in found.walk.terms} == found.walk.terms


@pytest.mark.parametrize("name", MIXED)
def test_stages_of_unlike_layers_hold_the_weights_of_their_own(name):
    shape = model(name)
    counts = (shape.layers // 2 + 1, shape.layers - shape.layers // 2 - 1)
    s = textbook(name, replicas=1, pp=2, stage_layers=counts)
    table = shape.vocabulary * shape.hidden if shape.tied else 0
    held = [pb.program(s, rank).memory().state["parameters"] // 2 for rank in (0, 1)]
    first, second = shape.stage_parameters(counts)
    assert held == [first, second + table]
    assert pb.training_memory(s).per_stage[0]["peak_bytes"] == pb.program(s, 0).memory().peak_bytes


@pytest.mark.parametrize("name", MIXED)
def test_time_and_traffic_of_unlike_layers_are_predicted(name):
    s = textbook(name, zero=3)
    assert pb.step_time(s).seconds > 0
    gathered = pb.traffic(s).select(axis="dp", collective="all_gather")
    # Twice for each of two micro-batches; the head and the embedding are one unit.
    assert gathered.count == 2 * 2 * (s.model.layers + 1)


def test_layers_are_as_many_objects_as_there_are_kinds():
    """Gemma 3 has windows of 512 tokens in some layers: at 512 tokens they do not matter, at 1024 they do."""
    for name, sequence, kinds in (
        ("gemma-3-1b", 512, 1),
        ("gemma-3-1b", 1024, 2),
        ("llama-4-maverick-text", 512, 2),
        ("llama-3.1-8b", 512, 1),
    ):
        s = textbook(name, sequence=sequence)
        assert len({id(block) for block in blocks_of(s, 0, context(s))[1:-1]}) == kinds


def test_costs_of_layers_are_those_of_their_kind():
    """A dense layer in front of layers with experts: state of 16 bytes a parameter of its own."""
    s = textbook("toy-15m", replicas=1)
    experts = Moe(experts=4, active=2, ffn=128, first_dense=1)
    s = replace(s, model=replace(s.model, moe=experts))
    costs = {cost.name: cost for cost in layer_costs(s)}
    sizes = [sum(p.numel for p in s.model.block_parameters(layer)) for layer in range(s.model.layers)]
    assert [costs[f"layers.{n}"].state_bytes for n in range(s.model.layers)] == [16 * size for size in sizes]
    assert sizes[0] != sizes[1]


@pytest.mark.parametrize("schedule", ["zb-h1", "zbv"])
@pytest.mark.parametrize("name", ["deepseek-v2-lite", "qwen1.5-moe-a2.7b"])
def test_backward_in_two_parts_keeps_no_more_at_the_end_than_state(name, schedule):
    shape = model(name)
    stages = 4 if schedule == "zbv" else 2
    counts = tuple(shape.layers // stages + (n < shape.layers % stages) for n in range(stages))
    s = textbook(name, replicas=1, pp=2, schedule=schedule, stage_layers=counts)
    program = pb.program(s)
    assert (program.held.birth <= program.held.death).all()
    assert program.memory().left_after(len(program) - 1) == sum(program.memory().state.values())


def test_a_full_recompute_keeps_the_input_of_each_layer_only():
    """2·T·h bytes a layer of 27, and one layer's own tensors while it is run again."""
    s = textbook("deepseek-v2-lite", replicas=1)
    s = replace(s, workload=replace(s.workload, recompute="full", global_batch=1))
    program = pb.program(s)
    levels = program.memory().levels
    term = list(program.memory().term_names).index("activations")
    last = max(row for row in range(len(program)) if program.phase(row) == "F")
    assert levels[last][term] == 2 * 512 * 2048 * (27 + 2)

import math

import pytest
import torch

from playbook.models.batch import make_batch
from playbook.models.transformer import Transformer, seed_weights
from playbook.runtime.miniature import miniature
from playbook.runtime.parity import Gate, Whole, check_step, expect_all, gradient_of, relative_error
from playbook.runtime.part import Part, world
from playbook.runtime.strategy_run import strategy_run
from playbook.spec import Layout, model


def errors(pool, function, *args):
    return pool.submit(function, *args).result(60).values


def test_error_is_the_largest_difference_over_the_largest_magnitude():
    assert relative_error(torch.tensor([1.0, -3.0]), torch.tensor([1.0, -4.0])) == 0.25
    assert relative_error(torch.tensor([1.0]), torch.tensor([1.0])) == 0.0
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0.0


@pytest.mark.parametrize("value", [torch.tensor([math.nan]), torch.tensor([math.inf]), torch.zeros(2)])
def test_what_is_not_finite_or_of_another_shape_is_infinitely_wrong(value):
    assert relative_error(value, torch.ones(1)) == math.inf


def test_a_value_where_there_should_be_none_is_infinitely_wrong():
    assert relative_error(torch.ones(1), torch.zeros(1)) == math.inf


def test_a_gradient_that_backward_did_not_make_is_named():
    with pytest.raises(ValueError, match=r"layers\.0"):
        gradient_of("layers.0", torch.ones(1, requires_grad=True))


def gate_of(seen):
    place = world("cpu", "dp")
    gate = Gate("fp64", "one number")
    for name in ("loss", "gradient a", "parameter a"):
        gate.expect(name)
    for name, values in seen.items():
        gate.compare(name, torch.tensor([values[place.rank]]), torch.tensor([2.0]))
    parity = gate.close(place)
    return parity.summary(), parity.errors


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_the_worst_rank_counts(pool):
    right = [2.0, 2.0]
    seen = {"loss": [2.0, 2.5], "gradient a": right, "parameter a": right}
    for summary, found in errors(pool, gate_of, seen):
        assert found == {"loss": 0.25, "gradient a": 0.0, "parameter a": 0.0}
        assert summary == {
            "ok": False,
            "loss_error": 0.25,
            "grad_error": 0.0,
            "step_error": 0.0,
            "dtype": "fp64",
            "tolerance": 1e-12,
            "model": "one number",
        }


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_a_tensor_that_no_rank_shows_fails_the_gate(pool):
    summary, found = errors(pool, gate_of, {"loss": [2.0, 2.0], "gradient a": [2.0, 2.0]})[0]
    assert found["parameter a"] == math.inf
    assert not summary["ok"]


def halves(skips):
    """Average gradients of a plain model over the ranks, or leave one parameter out."""
    place = world("cpu", "dp")
    spec = miniature(model("toy-15m"), Layout())
    gate = Gate("fp64", spec.name)
    modules = [Transformer(spec) for _ in range(2)]
    for module in modules:
        seed_weights(module, 0)
    whole, own = Whole(modules[0].double()), modules[1].double()
    expect_all(gate, whole)

    def finish():
        for name, parameter in own.named_parameters():
            if name != skips:
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad /= 2

    batch = make_batch(spec, sequences=4, sequence=6, seed=1, device=place.device)
    check_step(gate, Part(module=own, splits_batch=True, finish=finish), whole, batch, place, 1)
    return {name for name, error in gate.close(place).errors.items() if error > 1e-12}


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_the_gate_passes_averaged_gradients_and_names_the_one_that_was_not(pool):
    assert errors(pool, halves, None)[0] == set()
    assert errors(pool, halves, "norm.weight")[0] == {"gradient norm.weight", "parameter norm.weight"}


@pytest.mark.dist
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("strategy", "dtype", "tolerance"), [("tp", "fp32", 1e-6), ("ddp", "bf16", 1e-2)])
def test_lower_precision_has_a_wider_gate(pool, strategy, dtype, tolerance):
    run = pool.submit(strategy, dtype=dtype, repeats=1, sequence=8, micro_batch=1).result(60)
    parity = run.values[0]["parity"]
    assert (parity["dtype"], parity["tolerance"], parity["ok"]) == (dtype, tolerance, True)


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_partial_sums_that_are_rounded_to_bf16_show(pool):
    parity = (
        pool.submit("tp", dtype="bf16", repeats=1, sequence=8, micro_batch=1).result(60).values[0]["parity"]
    )
    assert 1e-3 < parity["grad_error"] < 5e-2


def test_a_miniature_keeps_the_structure_and_makes_shards_unequal():
    spec = miniature(model("llama-3.1-8b"), Layout(dp=4, zero=3))
    assert (spec.hidden % 2, spec.ffn % 2, spec.vocabulary % 2) == (1, 1, 1)
    assert spec.kv_heads < spec.heads
    assert miniature(model("llama-3.2-1b"), Layout()).tied


@pytest.mark.parametrize(("tp", "kv_heads"), [(2, 2), (4, 4), (8, 8), (16, 8)])
def test_a_miniature_has_fewer_key_value_heads_than_ranks_where_the_model_has(tp, kv_heads):
    spec = miniature(model("llama-3.1-8b"), Layout(tp=tp))
    assert spec.kv_heads == kv_heads
    assert spec.heads % tp == spec.ffn % tp == spec.vocabulary % tp == 0


def test_two_steps_and_two_seeds_are_the_default():
    run = strategy_run("ddp", 2)
    assert (run.steps, run.seeds, run.dtype, run.parity) == (2, (0, 1), "fp64", "miniature")


@pytest.mark.parametrize(
    ("levers", "text"),
    [
        ({"dtype": "fp8"}, "valid are fp64, fp32, bf16"),
        ({"seeds": ()}, "seeds is empty"),
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"parity": "maybe"}, "valid are miniature, model, off"),
        ({"fault": "gremlin"}, "valid are skipped_collective, wrong_offset"),
        ({"fault": "wrong_offset", "by": "library"}, "use by='hand'"),
        ({"colour": 1}, "no lever 'colour'; levers are by, parity"),
        ({"recipe": "bf16-fp32grad"}, "valid are fp32, bf16-fp32master, bf16, sgd, fsdp2-mixed"),
        ({"model": "gpt2"}, "use a dense kind of Llama, Mistral or Qwen"),
        ({"recompute": "half"}, "valid are none, selective, full"),
    ],
)
def test_levers_are_checked_before_any_rank_is_asked(levers, text):
    with pytest.raises(ValueError, match=text):
        strategy_run("ddp", 2, **levers)

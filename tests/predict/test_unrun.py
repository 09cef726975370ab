from dataclasses import replace

import pytest

import playbook as pb
from playbook.runtime.trace_scope import check_traceable
from playbook.spec import Layout, Scenario, Workload, model

STAGED = Layout(pp=2, dp=2)


def scenario(name="toy-15m", layout=STAGED, **work) -> Scenario:
    return Scenario(model(name), Workload(sequence=128, recipe="bf16", **work), layout, framework="torch")


@pytest.mark.parametrize(
    ("name", "layout", "sync", "word"),
    [
        ("smollm2-135m", Layout(pp=2), "last", "tied table"),
        ("toy-15m", STAGED, "every", "gradient_sync='last'"),
        ("toy-15m", Layout(pp=2, dp=2, zero=3), "every", "gradient_sync='last'"),
    ],
)
def test_what_the_tracer_refuses_is_said_beside_the_prediction(name, layout, sync, word):
    s = scenario(name, layout, global_batch=8, gradient_sync=sync)
    assert word in pb.training_memory(s).note
    with pytest.raises(ValueError, match="tied table|gradient_sync='every'"):
        check_traceable(s)


@pytest.mark.parametrize(
    ("zero", "words"),
    [(3, "use reshard=False"), (1, "use zero=3 with reshard"), (0, "use zero=3 with reshard")],
)
def test_split_backwards_that_lose_gradients_are_refused_and_said(zero, words):
    # Traced on the last stage of zb-h1: under FSDP2 with reshard no row of W, no reduction and no optimizer
    # step; under DDP no all-reduce.
    lossy = Layout(pp=2, dp=2, zero=zero, schedule="zb-h1")
    s = scenario(layout=lossy, global_batch=8, gradient_sync="last")
    assert words in pb.training_memory(s).note
    with pytest.raises(ValueError, match=words):
        check_traceable(s)
    kept = replace(s, layout=replace(lossy, zero=3, reshard=False))
    assert "torch's pipelines" not in pb.training_memory(kept).note
    check_traceable(kept)


def test_what_the_tracer_runs_has_no_such_note():
    late = scenario(global_batch=8, gradient_sync="last")
    for s in (late, scenario(layout=Layout(dp=2), global_batch=8), replace(late, framework="textbook")):
        assert "torch's pipelines" not in pb.training_memory(s).note

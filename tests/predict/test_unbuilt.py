import pytest

import playbook as pb
from playbook.spec import cluster


def ask(framework="textbook", layout=None, **work):
    s = pb.Scenario(
        pb.model("toy-15m"),
        pb.Workload(**work),
        pb.Layout(**(layout or {})),
        cluster("laptop"),
        framework=framework,
    )
    return pb.training_memory(s)


@pytest.mark.parametrize(
    ("layout", "work", "words"),
    [
        ({"dp": 4, "dp_replicate": 2}, {}, "dp_replicate=2 with zero=0: .*; use dp_replicate=1, or zero=3"),
    ],
)
def test_a_field_that_no_program_models_is_refused_by_name(layout, work, words):
    with pytest.raises(ValueError, match=words):
        ask(layout=layout, **work)


def test_a_framework_without_a_policy_is_refused_with_those_that_have_one():
    with pytest.raises(
        ValueError, match="framework='llm-foundry' is not built yet; use one of .*textbook, torch"
    ):
        ask(framework="llm-foundry")


def test_a_schedule_that_a_framework_does_not_have_is_refused_with_those_it_has():
    with pytest.raises(ValueError, match="torch has no schedule zb-h2; it runs 1f1b"):
        ask("torch", layout={"pp": 2, "schedule": "zb-h2"}, recipe="fp32")


def test_pytorch_refuses_zero_2_with_what_comes_nearest():
    with pytest.raises(ValueError, match="zero=2: .* use zero=3 with reshard=False .*--zero 3 --no-reshard"):
        ask("torch", {"dp": 2, "zero": 2}, recipe="fp32")


@pytest.mark.parametrize("predict", [pb.program, pb.traffic, pb.training_memory, pb.step_time])
def test_what_is_no_scenario_is_refused(predict):
    with pytest.raises(TypeError, match="a prediction takes a Scenario, not a Model"):
        predict(pb.model("toy-15m"))

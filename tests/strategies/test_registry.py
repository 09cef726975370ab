import pytest

import playbook as pb
from playbook.spec import Scenario
from playbook.strategies import plan, plans, refuse_predicted_layout, refuse_predicted_only, runnable


def test_the_folder_is_the_registry():
    assert {"ddp", "zero1", "zero2", "fsdp2", "hsdp", "tp", "cp", "ep", "pp"} <= set(plans())
    assert all(name == entry.name for name, entry in plans().items())


def test_names_ignore_case_and_unknown_ones_list_the_valid():
    assert plan("FSDP2").name == "fsdp2"
    with pytest.raises(ValueError, match=r"strategy='ddpp' is not known; valid are cp, ddp, ep, fsdp2, hsdp"):
        plan("ddpp")


@pytest.mark.parametrize("name", sorted(plans()))
def test_every_strategy_makes_the_scenario_of_a_run(name):
    s = plan(name).scenario(2)
    assert isinstance(s, Scenario)
    assert (s.world, s.model.name.split()[0], s.workload.kernels) == (2, "toy-15m", "cpu")
    assert plan(name).applies(s.layout)
    assert pb.program(s, rank=1).memory().peak_bytes > 0


def test_pytorch_runs_all_but_zero_2_which_it_does_not_have_and_experts_which_its_transformer_has_not():
    frameworks = {name: entry.scenario(2).framework for name, entry in plans().items()}
    assert {name for name, framework in frameworks.items() if framework != "torch"} == {"zero2", "ep"}


@pytest.mark.parametrize("name", sorted(plans()))
def test_an_unknown_lever_is_refused_with_the_valid_ones(name):
    with pytest.raises(ValueError, match=f"strategy {name} has no lever 'widht'; levers are .*sequence"):
        plan(name).scenario(2, widht=3)


def test_levers_reach_layout_and_workload():
    s = plan("fsdp2").scenario(4, reshard=False, sequence=16, micro_batch=1, microbatches=3)
    assert (s.layout.dp, s.layout.zero, s.layout.reshard) == (4, 3, False)
    assert (s.workload.sequence, s.microbatches) == (16, 3)


def test_ranks_must_be_at_least_one():
    with pytest.raises(ValueError, match="ranks=0 must be at least 1"):
        plan("ddp").scenario(0)


@pytest.mark.parametrize("name", ["cp", "ep", "HSDP"])
def test_what_is_predicted_only_does_not_run_and_says_what_tells_of_it(name):
    assert name.lower() not in runnable()
    with pytest.raises(
        ValueError, match=f"{name}' is predicted only.*`playbook memory` tells of {name.lower()}"
    ):
        refuse_predicted_only(name)


@pytest.mark.parametrize(
    "layout",
    [
        {"zero": zero, "dp_replicate": replicas, "dp": 4, "cp": cp}
        for zero in range(4)
        for replicas in (1, 2)
        for cp in (1, 2)
    ],
)
def test_exactly_one_strategy_shares_the_state_of_a_layout(layout):
    applied = [
        entry.name
        for entry in plans().values()
        if entry.step == "data" and entry.applies(pb.Layout(**layout))
    ]
    expected = ["ddp", "zero1", "zero2", "fsdp2"][layout["zero"]]
    assert applied == ["hsdp" if layout["zero"] == 3 and layout["dp_replicate"] == 2 else expected]


@pytest.mark.parametrize(
    "fields", [{"cp": 2}, {"dp": 2, "ep": 2}, {"dp": 2, "etp": 2}, {"dp": 2, "dp_replicate": 2}]
)
def test_a_layout_without_code_for_its_ranks_is_not_traced(fields):
    name, degree = list(fields.items())[-1]
    words = f"{name}={degree} is predicted only, .*{name}=1 runs"
    with pytest.raises(ValueError, match=words):
        refuse_predicted_layout(pb.Layout(**fields))
    refuse_predicted_layout(pb.Layout(dp=2, tp=2, pp=2))

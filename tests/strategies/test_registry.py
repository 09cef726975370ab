import pytest

import playbook as pb
from playbook.spec import Scenario
from playbook.strategies import plan, plans


def test_the_folder_is_the_registry():
    assert {"ddp", "zero1", "zero2", "fsdp2", "tp", "pp"} <= set(plans())
    assert all(name == entry.name for name, entry in plans().items())


def test_names_ignore_case_and_unknown_ones_list_the_valid():
    assert plan("FSDP2").name == "fsdp2"
    with pytest.raises(ValueError, match=r"strategy='ddpp' is not known; valid are .*ddp, fsdp2"):
        plan("ddpp")


@pytest.mark.parametrize("name", sorted(plans()))
def test_every_strategy_makes_the_scenario_of_a_run(name):
    s = plan(name).scenario(2)
    assert isinstance(s, Scenario)
    assert (s.world, s.model.name, s.workload.kernels) == (2, "toy-15m", "cpu")
    assert plan(name).applies(s.layout)
    assert pb.program(s, rank=1).memory().peak_bytes > 0


def test_pytorch_runs_all_but_zero_2_which_it_does_not_have():
    frameworks = {name: entry.scenario(2).framework for name, entry in plans().items()}
    assert {name for name, framework in frameworks.items() if framework != "torch"} == {"zero2"}


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

import pytest

import playbook as pb
from playbook import predict


def test_a_scenarios_program_is_walked_and_summed():
    s = pb.Scenario(pb.model("toy-15m"), pb.Workload(sequence=64), pb.Layout(dp=2, zero=3))
    program = predict.program(s, rank=1)
    assert program.rank == 1
    assert program.memory().peak_bytes == predict.training_memory(s, rank=1).peak_bytes
    assert predict.traffic(s, rank=1).payload_bytes == program.traffic().payload_bytes


@pytest.mark.parametrize("name", predict.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(predict, name).__doc__


def test_the_same_scenario_gives_the_same_program_every_time():
    s = pb.Scenario(pb.model("toy-15m"), pb.Workload(sequence=64), pb.Layout(dp=2, zero=3))
    one, other = pb.program(s), pb.program(s)
    assert one.ids() == other.ids()
    assert (one.memory().levels == other.memory().levels).all()

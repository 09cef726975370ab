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


def test_results_say_in_a_line_what_they_are():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(), pb.Layout(dp=8, zero=3))
    program = pb.program(s)
    texts = [repr(x) for x in (program, program.memory(), program.traffic(), program.timeline())]
    texts += [repr(pb.training_memory(s)), repr(pb.step_time(s))]
    assert all(len(text) < 200 and "\n" not in text for text in texts)
    assert "fits h100" in texts[4].lower()
    assert pb.training_memory(s) != pb.training_memory(s)

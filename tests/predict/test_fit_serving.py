import playbook as pb
from playbook.predict.fit_serving import engine_layout, serving_choices

S = pb.Scenario(pb.model("llama-3.1-70b"))


def test_a_training_layout_keeps_the_degrees_that_an_engine_has():
    layout = pb.Layout(
        dp=4, tp=8, pp=2, zero=1, sequence_parallel=True, schedule="interleaved-1f1b", chunks=2
    )
    assert engine_layout(layout) == pb.Layout(dp=4, tp=8, pp=2)


def test_engines_are_ordered_by_gpus_with_the_widest_tp():
    choices = serving_choices(S, "gpus", pb.Serving())
    found = [(choices.value(n), choices.words(n)) for n in range(5)]
    assert found == [
        (1, "as tp=1 x pp=1"),
        (2, "as tp=2 x pp=1"),
        (3, "as tp=1 x pp=3"),
        (4, "as tp=4 x pp=1"),
        (5, "as tp=1 x pp=5"),
    ]


def test_a_sequence_is_prompt_and_output():
    choices = serving_choices(S, "sequence", pb.Serving(output=100))
    assert choices.value(0) == 101
    assert choices.ask(9).serving.sequence == choices.value(9) == 110


def test_learned_positions_end_the_prompt():
    choices = serving_choices(
        pb.Scenario(pb.model("gpt2"), pb.Workload(sequence=8)), "sequence", pb.Serving()
    )
    assert choices.count is not None
    assert choices.value(choices.count - 1) == 1024

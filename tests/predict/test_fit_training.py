from dataclasses import replace

import playbook as pb
from playbook.predict.fit_training import choices_of, enough, expert_unit

SMALL = pb.model("qwen3-30b-a3b")


def first(s, vary, count=4):
    choices = choices_of(s, vary)
    return [choices.value(n) for n in range(min(count, choices.count or count))]


def test_sequences_are_cut_in_twice_as_many_pieces_as_context_ranks():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(sequence=4096), pb.Layout(cp=4))
    assert first(s, "sequence") == [8, 16, 24, 32]
    straight = replace(s, layout=replace(s.layout, cp_split="contiguous"))
    assert first(straight, "sequence") == [4, 8, 12, 16]


def test_layers_are_multiples_of_the_stages():
    s = pb.Scenario(pb.model("llama-3.1-8b"), layout=pb.Layout(pp=4))
    assert first(s, "layers") == [4, 8, 12, 16]


def test_replicas_follow_the_global_batch_and_the_experts():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(global_batch=6), pb.Layout(tp=2))
    assert first(s, "gpus") == [2, 4, 6, 12]
    dealt = pb.Scenario(SMALL, layout=pb.Layout(dp=4, tp=2, ep=8))
    assert expert_unit(dealt) == 4
    assert first(dealt, "gpus") == [8, 16, 24, 32]


def test_a_batch_bounds_the_replicas():
    work = pb.Workload(global_batch=2, micro_batch=1)
    s = pb.Scenario(SMALL, work, pb.Layout(dp=2, tp=4, ep=8))
    narrow = replace(s, workload=replace(work, global_batch=3), layout=pb.Layout(dp=1, tp=4, ep=4))
    assert first(s, "gpus") == [8]
    assert first(narrow, "gpus") == [4, 12]


def test_as_many_nodes_as_needed_are_taken():
    node = pb.cluster("1x8-h100")
    assert (enough(node, 8).nodes, enough(node, 9).nodes) == (1, 2)
    assert enough(node, 9).name == "2x8-h100"

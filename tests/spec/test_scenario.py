import pytest

import playbook as pb
from playbook.frameworks import policies
from playbook.spec import smallest_cluster
from playbook.spec.scenario import PREDICTED


def scenario(model="llama-3.1-70b", workload=None, cluster=None, **layout):
    return pb.Scenario(pb.model(model), workload or pb.Workload(), pb.Layout(**layout), cluster)


def test_the_cluster_is_the_fewest_nodes_that_hold_the_world():
    assert scenario(dp=4, tp=8).cluster == smallest_cluster(32)
    assert scenario(dp=4, tp=8).world == 32


def test_batches_follow_from_the_layout_unless_given():
    made = scenario(dp=4, pp=8, workload=pb.Workload(micro_batch=2))
    assert (made.global_batch, made.microbatches) == (64, 8)
    assert scenario(dp=4, workload=pb.Workload(global_batch=512)).microbatches == 128


def test_a_global_batch_must_be_whole_micro_batches():
    with pytest.raises(
        ValueError, match="global_batch=10 is not a multiple of dp=4 x micro_batch=1 = 4; use .*8 or 12"
    ):
        scenario(dp=4, workload=pb.Workload(global_batch=10))
    with pytest.raises(ValueError, match="use global_batch=4$"):
        scenario(dp=4, workload=pb.Workload(global_batch=3))


def test_ranks_share_key_value_heads_beyond_their_number():
    assert scenario(tp=16).layout.tp == 16


@pytest.mark.parametrize(
    ("model", "layout", "text"),
    [
        (
            "llama-3.1-70b",
            {"tp": 3},
            "tp=3 does not divide heads=64 of llama-3.1-70b; tp in 1, 2, 4, 8, 16, 32, 64",
        ),
        ("gpt2", {"tp": 2}, "tp=2 does not divide vocabulary=50257 of gpt2; tp in 1 would work"),
        (
            "qwen2.5-14b",
            {"tp": 5},
            "tp=5 does not divide ffn=13824 of qwen2.5-14b; tp in 1, 2, 4, 8 would work",
        ),
        ("toy-15m", {"tp": 3}, "tp=3 does not divide ffn=1024 of toy-15m; tp in 1, 2 would work"),
        ("toy-15m", {"pp": 4}, "4 stages do not divide layers=6 of toy-15m; use .* stage_layers=2,2,1,1"),
        ("toy-15m", {"pp": 8}, "8 stages but toy-15m has 6 layers; use at most 6 stages"),
        ("toy-15m", {"pp": 2, "stage_layers": (3, 4)}, "stage_layers add up to 7 but toy-15m has 6 layers"),
        ("toy-15m", {"sequence_parallel": True}, "sequence_parallel=True but tp=1"),
        (
            "toy-15m",
            {"cp": 3},
            r"2 x cp .* = 6 does not divide sequence=4096; cp in 1, 2, 4, 8",
        ),
    ],
)
def test_layouts_that_do_not_fit_the_model_are_refused_with_what_would(model, layout, text):
    workload = pb.Workload(sequence=1024) if model == "gpt2" else None
    with pytest.raises(ValueError, match=text):
        scenario(model, workload, **layout)


def test_uneven_stages_are_taken_when_they_are_given():
    assert scenario("toy-15m", pp=4, stage_layers=(2, 2, 1, 1)).stage_layers == (2, 2, 1, 1)
    assert scenario("toy-15m", pp=3).stage_layers == (2, 2, 2)


def test_a_world_larger_than_the_cluster_is_refused_but_a_laptop_is_shared():
    with pytest.raises(ValueError, match="tp=8 x dp=2 = 16 ranks but cluster 1x8-h100 has 8 GPUs"):
        scenario(dp=2, tp=8, cluster=pb.cluster("1x8-h100"))
    assert scenario("toy-15m", dp=64, cluster=pb.cluster("laptop")).world == 64


def test_learned_positions_limit_the_sequence():
    with pytest.raises(
        ValueError, match="sequence=4096 but gpt2 has 1024 learned positions; use sequence=1024 or less"
    ):
        scenario("gpt2")


def test_frameworks_are_known_by_name():
    made = pb.Scenario(pb.model("toy-15m"), framework="Torch")
    assert made.framework == "torch"
    with pytest.raises(ValueError, match="framework='jax' is not known; valid are textbook, torch"):
        pb.Scenario(pb.model("toy-15m"), framework="jax")


def test_parts_of_the_wrong_kind_are_type_errors():
    with pytest.raises(TypeError, match="model='toy-15m' must be a Model"):
        pb.Scenario("toy-15m")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cluster='laptop' must be a Cluster"):
        pb.Scenario(pb.model("toy-15m"), pb.Workload(), pb.Layout(), "laptop")  # type: ignore[arg-type]


def test_scenarios_can_be_keys():
    assert len({scenario(dp=2), scenario(dp=2), scenario(dp=4)}) == 2


def test_a_framework_that_is_not_known_is_answered_with_those_that_are_predicted():
    assert set(PREDICTED) == set(policies())
    with pytest.raises(ValueError, match=r"valid are textbook, .*nanotron; did you mean textbook\?$"):
        pb.Scenario(pb.model("toy-15m"), framework="texbook")


def test_expert_degrees_of_a_dense_model_in_json_are_refused_by_what_it_lacks():
    with pytest.raises(ValueError, match="ep=2 but toy-15m has no routed experts; use ep=1"):
        pb.Scenario.from_json('{"model": "toy-15m", "layout": {"ep": 2}}')

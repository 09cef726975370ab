import json
import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb
from playbook.spec import Lora


@st.composite
def scenarios(draw):
    name = draw(st.sampled_from(["toy-15m", "llama-3.1-70b", "qwen3-8b"]))
    tp = draw(st.sampled_from([1, 2]))
    layout = pb.Layout(
        dp=draw(st.sampled_from([1, 2, 4])),
        tp=tp,
        pp=draw(st.sampled_from([1, 2])),
        zero=draw(st.integers(0, 3)),
        sequence_parallel=tp > 1 and draw(st.booleans()),
        schedule=draw(st.sampled_from(["1f1b", "gpipe"])),
        reshard=draw(st.booleans()),
        dp_replicate=1,
    )
    workload = pb.Workload(
        sequence=draw(st.sampled_from([128, 4096])),
        micro_batch=draw(st.sampled_from([1, 2])),
        recipe=draw(st.sampled_from(["fp32", "bf16", "bf16-fp32master"])),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        lora=draw(st.sampled_from([None, Lora(rank=8)])),
    )
    cluster = draw(st.sampled_from([None, "laptop", "4x8-h200", "2x8-h100"]))
    framework = draw(st.sampled_from(["textbook", "torch"]))
    found = pb.cluster(cluster) if cluster else None
    return pb.Scenario(pb.model(name), workload, layout, found, framework=framework)


@settings(max_examples=50, deadline=None)
@given(scenarios())
def test_json_gives_the_scenario_back(scenario):
    assert pb.Scenario.from_json(scenario.to_json()) == scenario


@settings(max_examples=25, deadline=None)
@given(scenarios())
def test_the_python_copy_makes_an_equal_scenario(scenario):
    names: dict = {}
    exec(scenario.as_python(), names)
    assert names["scenario"] == scenario


def test_the_python_copy_of_a_model_with_experts_and_latents_needs_no_further_import():
    model = replace(pb.model("deepseek-v2-lite"), name="mine", layers=4)
    scenario = pb.Scenario(model, pb.Workload(), pb.Layout())
    names: dict = {}
    exec(scenario.as_python(), names)
    assert names["scenario"] == scenario
    assert pb.Scenario.from_json(scenario.to_json()) == scenario


def test_the_python_copy_of_the_example_names_only_what_differs():
    scenario = pb.Scenario(
        pb.model("llama-3.1-70b"),
        pb.Workload(sequence=32_768, global_batch=512, recompute="full"),
        pb.Layout(dp=4, tp=8, pp=4, cp=4, zero=1, sequence_parallel=True),
        pb.cluster("64x8-h100"),
    )
    assert scenario.as_python() == (
        "import playbook as pb\n\n"
        "scenario = pb.Scenario(\n"
        "    pb.model('llama-3.1-70b'),\n"
        "    pb.Workload(sequence=32768, global_batch=512, recompute='full'),\n"
        "    pb.Layout(dp=4, tp=8, pp=4, cp=4, zero=1, sequence_parallel=True),\n"
        "    pb.cluster('64x8-h100'),\n"
        "    framework='textbook',\n"
        ")\n"
    )


def test_a_model_and_a_cluster_without_a_name_are_written_out():
    model = pb.Model(
        name="mine",
        family="llama",
        layers=2,
        hidden=64,
        heads=4,
        kv_heads=4,
        head_dim=16,
        ffn=128,
        vocabulary=100,
        max_sequence=64,
    )
    base = pb.cluster("laptop")
    own = pb.Cluster(name="own", nodes=1, gpus_per_node=2, gpu=base.gpu, intra=base.intra, inter=base.inter)
    scenario = pb.Scenario(model, pb.Workload(), pb.Layout(dp=2), own)
    names: dict = {}
    exec(scenario.as_python(), names)
    assert names["scenario"] == scenario
    with pytest.raises(ValueError, match="model 'mine' is neither a preset nor read from a file"):
        scenario.as_command()


def test_the_command_names_only_what_differs():
    scenario = pb.Scenario(
        pb.model("toy-15m"),
        pb.Workload(recompute="full", lora=Lora(rank=4, targets=("q_proj",))),
        pb.Layout(dp=2, pp=4, reshard=False, stage_layers=(2, 2, 1, 1)),
        framework="torch",
    )
    assert scenario.as_command() == (
        "playbook memory --model toy-15m --recompute full --lora 4:q_proj --dp 2 --pp 4 --no-reshard "
        "--stage-layers 2,2,1,1 --framework torch"
    )
    assert shlex.split(scenario.as_command("trace"))[1] == "trace"


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ("1x8-h100", ""),
        ("1x8-h200", " --gpu h200"),
        ("4x8-h200", " --cluster 4x8-h200"),
        ("laptop", " --cluster laptop"),
    ],
)
def test_the_command_names_a_cluster_by_its_gpu_where_that_is_enough(cluster, words):
    scenario = pb.Scenario(pb.model("toy-15m"), pb.Workload(), pb.Layout(), pb.cluster(cluster))
    assert scenario.as_command() == f"playbook memory --model toy-15m{words}"


def test_short_json_names_presets():
    made = pb.Scenario.from_json('{"model": "toy-15m", "layout": {"dp": 2}, "cluster": "laptop"}')
    assert made == pb.Scenario(pb.model("toy-15m"), pb.Workload(), pb.Layout(dp=2), pb.cluster("laptop"))
    assert pb.Scenario.from_json({"model": "toy-15m"}) == pb.Scenario(pb.model("toy-15m"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "scenario is not JSON"),
        ("[]", "scenario is a list, not an object"),
        ("{}", "scenario has no 'model'"),
        ('{"model": "toy-15m", "colour": 1}', "scenario has no field 'colour'; its fields are schema, model"),
        ('{"model": "toy-15m", "layout": {"xp": 2}}', "Layout has no field 'xp'; its fields are dp, tp"),
        ('{"model": "toy-15m", "schema": 9}', "schema=9 of a scenario is not read"),
        ('{"model": {"layers": 2}}', "Model: missing .* arguments"),
    ],
)
def test_json_that_is_no_scenario_is_refused_in_words(text, message):
    with pytest.raises(ValueError, match=message):
        pb.Scenario.from_json(text)


def test_json_carries_the_version_of_its_form():
    assert json.loads(pb.Scenario(pb.model("toy-15m")).to_json())["schema"] == 1

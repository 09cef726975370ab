"""What pipeline stages hold by published tables: activations and parameters by schedule, parameters of uneven
stages, and a table that is padded."""

import pytest

import playbook as pb
from playbook.spec import Moe
from tests.shapes import gpt


@pytest.mark.parametrize("stages", [4, 8, 16])
@pytest.mark.parametrize(
    ("name", "in_flight", "copies"), [("1f1b", 0, 1), ("zb-h1", 0, 1), ("dualpipe", 1, 2)]
)
def test_dualpipe_holds_one_micro_batch_more_and_twice_the_parameters(name, in_flight, copies, stages):
    # deepseek-ai/DualPipe, README: PP, PP and PP + 1 micro-batches; parameters once, once and twice.
    made = pb.schedule(name, stages=stages, microbatches=4 * stages)
    assert max(made.simulate().peak_live) == stages + in_flight
    layers = 2 * stages
    work, layout = pb.Workload(sequence=64, global_batch=4 * stages), pb.Layout(pp=stages, schedule=name)
    s = pb.Scenario(toy(layers), work, layout)
    held = {row["stage"] for row in pb.training_memory(s).per_stage}
    assert held == set(range(stages))
    middle = pb.program(s, rank=1).memory().terms["parameters"]
    once = (
        pb.program(pb.Scenario(toy(layers), work, pb.Layout(pp=stages)), rank=1).memory().terms["parameters"]
    )
    # The copy of a middle stage is another middle stage, at the other end of the pipeline.
    assert middle == copies * once


@pytest.mark.parametrize("devices", [4, 8])
def test_dualpipe_v_holds_as_much_on_half_the_devices(devices):
    # README: PP + 1 for PP stages on PP / 2 devices, each with two stages.
    made = pb.schedule("dualpipe-v", stages=devices, microbatches=4 * devices)
    assert max(made.simulate().peak_live) == 2 * devices + 1


def toy(layers, **sizes):
    given = {"hidden": 16, "ffn": 64, "heads": 4, "vocabulary": 32, "tied": True, **sizes}
    return pb.Model(
        name="toy",
        family="gpt2",
        layers=layers,
        kv_heads=given["heads"],
        head_dim=given["hidden"] // given["heads"],
        gated=False,
        norm="layer",
        max_sequence=64,
        **given,
    )


def test_the_heaviest_of_uneven_stages_is_not_the_average():
    # NVIDIA-NeMo/Megatron-Bridge, pull request 5077: 8 layers of 16 features in stages of 1, 2, 2 and 3.
    stages = toy(8).stage_parameters((1, 2, 2, 3), copies=True)
    assert max(stages) == stages[-1] == 9952
    # The estimate before it: layers and last norm shared equally, and the tied table.
    table = 16 * 32
    assert (toy(8).parameters - table) // 4 + table == 6792


def test_stages_of_dense_and_expert_layers_differ_the_same_way():
    # The same request's mixed model: every second layer has experts. It counts neither these nor their
    # router here, since another formula there does.
    moe = Moe(experts=8, active=1, ffn=32, every=2)
    mixed = toy(8, moe=moe)
    routed = [
        sum(p.numel for p in mixed.block_parameters(layer) if p.expert or p.name == "mlp.gate.weight")
        for layer in range(8)
    ]
    assert [bool(size) for size in routed] == [False, True] * 4
    stages = mixed.stage_parameters((1, 2, 2, 3), copies=True)
    assert stages[-1] - sum(routed[5:]) == 5856
    table = 16 * 32
    assert (mixed.parameters - sum(routed) - table) // 4 + table == 4744


def test_gpt_2_with_a_padded_table():
    # karpathy/llm.c, issue 309: 124,475,904 parameters, 237 MiB in BF16 and 474 MiB for each FP32 moment.
    padded = gpt(
        name="gpt2",
        layers=12,
        hidden=768,
        heads=12,
        head_dim=64,
        ffn=3072,
        vocabulary=50304,
        tied=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        positions=1024,
        max_sequence=1024,
    )
    assert padded.parameters == 124_475_904
    work = pb.Workload(sequence=64, recipe="bf16-fp32master")
    terms = pb.program(pb.Scenario(padded, work)).memory().terms
    assert round(terms["parameters"] / 2**20) == 237
    assert int(terms["master_weights"] / 2**20) == 474
    assert int(terms["optimizer"] / 2 / 2**20) == 474

from dataclasses import replace

import pytest
import torch

import playbook as pb
from playbook.runtime.twin_clock import make_hold, timed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: twins run real kernels"),
    pytest.mark.timeout(300),
]
MODEL = replace(pb.model("llama-3.2-1b"), name="4 layers", layers=4)


def scenario(recipe, **layout):
    workload = pb.Workload(sequence=2048, micro_batch=2, recipe=recipe)
    return pb.Scenario(MODEL, workload, pb.Layout(**layout), framework="torch")


def test_a_stream_is_held_for_as_long_as_asked():
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    assert timed(device, make_hold(device)) == pytest.approx(2e-3, rel=0.1)


@pytest.mark.parametrize(
    ("recipe", "layout", "rank"),
    [("bf16", {"dp": 64}, 63), ("fsdp2-mixed", {"dp": 8, "zero": 3}, 3), ("bf16", {"tp": 8}, 5)],
)
def test_the_peak_is_the_predicted_one_within_four_per_cent(recipe, layout, rank):
    s = scenario(recipe, **layout)
    found = pb.twin(s, rank=rank)
    assert pb.training_memory(s, rank=rank).peak_bytes == pytest.approx(found.peak_bytes, rel=0.04)
    assert found.peak_bytes <= found.reserved_bytes < found.device_bytes
    assert sum(row["bytes"] for row in found.terms) == found.device_bytes


def test_a_slow_network_is_waited_for_and_none_is_not():
    slow = replace(pb.cluster("8x1-h200"), inter=pb.cluster("laptop").intra)
    s = replace(scenario("fsdp2-mixed", dp=8, zero=3), cluster=slow)
    assert pb.twin(s, rank=3).exposed_s > 0.1
    assert pb.twin(s, rank=3, network="off").exposed_s == 0.0

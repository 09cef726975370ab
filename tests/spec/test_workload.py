import pytest

import playbook as pb
from playbook.spec import Lora


def test_defaults_are_those_of_the_documented_interface():
    workload = pb.Workload()
    assert (workload.sequence, workload.micro_batch, workload.global_batch) == (4096, 1, None)
    assert (workload.recipe, workload.recompute, workload.attention) == ("bf16-fp32master", "none", "flash")
    assert (workload.loss, workload.optimizer_kernel, workload.kernels) == ("eager", "fused", "cuda")


def test_names_are_stored_as_they_are_spelled_here():
    assert pb.Workload(recipe="BF16", recompute="Full").recipe == "bf16"
    assert pb.Workload(recompute="Full") == pb.Workload(recompute="full")


@pytest.mark.parametrize(
    ("field", "error", "text"),
    [
        ({"sequence": 0}, ValueError, "sequence=0 must be at least 1"),
        ({"micro_batch": True}, TypeError, "micro_batch=True must be a whole number"),
        ({"global_batch": -1}, ValueError, "global_batch=-1 must be at least 1"),
        ({"recompute": "half"}, ValueError, "recompute='half' is not known; valid are none, selective, full"),
        ({"recipe": "fp8"}, ValueError, "recipe='fp8' is not built yet"),
        ({"lora": 8}, TypeError, "lora=8 must be a Lora"),
    ],
)
def test_bad_values_are_refused(field, error, text):
    with pytest.raises(error, match=text):
        pb.Workload(**field)


def test_adapters_have_a_rank_and_targets():
    assert Lora(rank=8).targets == ("q_proj", "v_proj")
    with pytest.raises(ValueError, match="lora targets are empty"):
        Lora(rank=8, targets=())

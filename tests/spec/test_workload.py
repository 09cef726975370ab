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
        ({"recipe": "fp7"}, ValueError, "recipe='fp7' is not known"),
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


def test_recipes_for_adapters_have_some_by_default():
    assert pb.Workload(recipe="lora").lora == Lora(rank=16)
    assert pb.Workload(recipe="qlora", lora=Lora(rank=4)).lora.rank == 4
    assert pb.Workload().lora is None


def test_frozen_tables_are_in_one_of_two_dtypes():
    with pytest.raises(ValueError, match="lora tables='int8' is not known; valid are bf16, fp32"):
        Lora(rank=4, tables="int8")


def test_what_is_offloaded_and_how_many_rows_a_loss_takes_are_checked():
    assert pb.Workload(offload="cpu").offload_parts == "optimizer"
    with pytest.raises(ValueError, match="offload_parts='weights' is not known; valid are optimizer"):
        pb.Workload(offload_parts="weights")
    with pytest.raises(ValueError, match="loss_chunk=0 must be at least 1"):
        pb.Workload(loss="chunked", loss_chunk=0)

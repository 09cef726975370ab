import pytest

import playbook as pb
from playbook.spec import Lora
from playbook.spec.adapters import adapters

EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_an_adapter_has_rank_times_inputs_and_outputs():
    # Llama 3.1 8B, 32 layers: q and o 4096 → 4096, k and v 4096 → 1024, feed-forward 4096 ↔ 14336.
    found = adapters(pb.model("llama-3.1-8b"), Lora(rank=16, targets=EVERY))
    assert found.trainable == 41_943_040
    assert found.total == 8_030_261_248 + 41_943_040
    assert round(found.percent, 3) == 0.522
    first = found.rows[0]
    assert (first["module"], first["count"], first["parameters"]) == ("self_attn.q_proj", 32, 4_194_304)
    assert list(found.table["module"]) == [row["module"] for row in found.rows]


def test_targets_match_in_every_model_that_is_trained():
    towers = (pb.model("llama-3.2-1b"), pb.model("llama-3.2-3b"))
    found = adapters(towers, Lora(rank=8))
    assert found.trainable == found.of("llama-3.2-1b") + found.of("llama-3.2-3b")
    # 16 layers of 2048: q to 2048, v to 512.
    assert found.of("llama-3.2-1b") == 16 * 8 * (4096 + 2560)


def test_names_of_no_projection_are_refused_with_those_there_are():
    with pytest.raises(
        ValueError, match="lora targets query name no projection .*use some of down_proj, gate"
    ):
        adapters(pb.model("llama-3.1-8b"), Lora(rank=8, targets=("query",)))
    with pytest.raises(ValueError, match="lora targets query name no projection"):
        pb.training_memory(
            pb.Scenario(pb.model("toy-15m"), pb.Workload(lora=Lora(rank=8, targets=("query",))))
        )

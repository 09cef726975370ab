import pytest

import playbook as pb
from playbook.predict.inference_rules import check_stages, step_tokens, works_for
from playbook.spec import gpu


def test_vllms_server_takes_larger_steps_on_large_gpus_that_are_no_a100():
    found = {name: step_tokens(pb.Serving(), gpu(name)) for name in ("h100", "h200", "a100", "a100-40")}
    assert found == {"h100": 8192, "h200": 8192, "a100": 2048, "a100-40": 2048}
    assert step_tokens(pb.Serving(max_batched_tokens=512), gpu("h100")) == 512


def test_degrees_divide_heads_and_features():
    assert works_for(pb.model("llama-3.1-8b")) == [1, 2, 4, 8, 16, 32]
    assert works_for(pb.model("deepseek-v3")) == [1, 2, 4, 8, 16, 32, 64, 128]  # a latent head bounds nothing


@pytest.mark.parametrize(
    ("pp", "layers"),
    [(1, (80,)), (4, (20, 20, 20, 20)), (3, (27, 27, 26)), (7, (11, 11, 11, 12, 12, 12, 11))],
)
def test_layers_that_remain_go_to_the_ranks_before_the_last(pp, layers):
    found = check_stages(pb.model("llama-3.1-70b"), pb.Layout(pp=pp))
    assert found == layers


def test_stages_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="stage_layers add up to 79 but llama-3.1-70b has 80 layers"):
        check_stages(pb.model("llama-3.1-70b"), pb.Layout(pp=2, stage_layers=(40, 39)))
    with pytest.raises(ValueError, match="pp=64 but llama-3.1-8b has 32 layers; use pp=32"):
        check_stages(pb.model("llama-3.1-8b"), pb.Layout(pp=64))

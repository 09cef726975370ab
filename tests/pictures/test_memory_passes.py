"""One layer before and after each pass; bytes by hand for Llama 3.1 70B, 855 654 400 weights a layer."""

import playbook as pb
from playbook.pictures.memory_passes import layer_steps

LAYER = 855_654_400
TOKENS, HIDDEN = 4096, 8192


def steps(framework="torch", recompute="full", recipe="fsdp2-mixed", **layout):
    work = pb.Workload(recompute=recompute, recipe=recipe)
    return layer_steps(pb.Scenario(pb.model("llama-3.1-70b"), work, pb.Layout(**layout), framework=framework))


def test_zero_three_gathers_twice_and_leaves_a_share():
    one, again, shared = steps(dp=64, zero=3)
    assert (one.name, again.name, shared.name) == ("one rank", "full recomputation", "ZeRO-3 over 64")
    assert shared.adds == "2 all-gathers over dp, 1 reduce-scatter over dp"
    assert one.state_bytes == 12 * LAYER
    assert shared.state_bytes == 12 * LAYER // 64
    # the gradients of a layer in FP32, before they are reduced
    assert shared.moment_bytes == 4 * LAYER


def test_full_recomputation_keeps_the_input_alone():
    one, again, _ = steps(dp=64, zero=3)
    # gate, its SiLU, up, product; q, k, v, output; two norms: a layer keeps at least these
    assert one.saved_bytes > TOKENS * (8 * 28672 + 16 * HIDDEN)
    assert again.saved_bytes == 2 * TOKENS * HIDDEN
    assert again.adds.endswith("operations again in backward")


def test_tensor_parallelism_adds_four_all_reduces_and_divides_the_state():
    one, split, *_ = steps("textbook", recompute="none", recipe="bf16-fp32master", tp=8, dp=2)
    assert split.name == "tensor parallel 8"
    assert split.adds.split(", ")[-1].endswith("over tp")
    # norms are copied: 2 x 8 192 weights of 855 654 400
    assert split.state_bytes == 16 * ((LAYER - 2 * HIDDEN) // 8 + 2 * HIDDEN)
    assert one.state_bytes == 16 * LAYER


def test_a_scenario_without_axes_is_one_row():
    (only,) = steps(recompute="none", recipe="bf16")
    assert only.adds.endswith("operations forward")


def test_torchtitan_has_its_mixed_recipe_under_fsdp2_only_and_is_told_pass_by_pass_too():
    one, again, shared = steps("torchtitan", recompute="selective", dp=64, zero=3)
    assert (one.name, shared.name) == ("one rank", "ZeRO-3 over 64")
    assert shared.adds == "2 all-gathers over dp, 1 reduce-scatter over dp"
    assert (one.state_bytes, shared.state_bytes) == (12 * LAYER, 12 * LAYER // 64)
    # its selective checkpointing runs more than the attention core again
    assert int(again.adds.split()[0]) > 1

"""What torch.distributed.pipelining leaves behind, against traces of its schedules on fake tensors."""

import pytest

import playbook as pb
from playbook.predict.stages import rank_memories
from tests.shapes import scenario_of

STREAM = 2 * 32 * 64
"""Bytes of 32 tokens of 64 features in BF16."""


@pytest.mark.parametrize(
    ("rank", "left", "layout"),
    [
        # Three directions with a room for each of four micro-batches; nothing that was sent.
        (0, 12, {"schedule": "interleaved-1f1b", "chunks": 2}),
        # The input's room, and its gradient where backward is split.
        (1, 8, {"schedule": "zb-h1"}),
        (0, 4, {"schedule": "zb-h1"}),
        (0, 4, {}),
    ],
)
def test_what_was_sent_is_gone_when_the_optimizer_starts(rank, left, layout):
    # Traced: as many tensors of one stream are there beside weights, gradients and the optimizer's state.
    s = scenario_of("torch", recipe="bf16", pp=2, global_batch=4, optimizer_kernel="foreach", **layout)
    program = pb.program(s, rank)
    found = program.memory().terms_at(program.ids().index("m-1/O//optimizer#0"))
    assert found["communication_buffers"] == left * STREAM
    assert "activations" not in found
    assert rank_memories(s)[rank].peaks[-1] == program.memory().totals[-1]


def test_a_norm_lets_go_of_what_is_wide_before_its_weight_is_multiplied_in():
    # Traced: 4 + 4 + 2 bytes a value and 4 a token end as 2 + 2 bytes a value, where a layer runs again.
    program = pb.program(scenario_of("torch", recipe="bf16", recompute="full"))
    levels, ids = program.memory().totals, program.ids()
    wide, narrow = (ids.index(f"m0/F/layers.1.input_layernorm/{op}#1") for op in ("_to_copy", "mul"))
    assert levels[wide] - levels[narrow] == 6 * 32 * 64 + 4 * 32


@pytest.mark.parametrize(
    "kernel", [{"recipe": "bf16-fp32master"}, {"recipe": "fp32", "optimizer_kernel": "for-loop"}]
)
def test_an_optimizer_that_takes_one_parameter_at_a_time_holds_the_largest_of_all_stages(kernel):
    # Traced: of rank 0's two stages FP32 copies of the token table, 128 x 64, and none of a product's weight.
    s = scenario_of("torch", pp=2, chunks=2, schedule="interleaved-1f1b", global_batch=4, **kernel)
    program, copies = pb.program(s), 1 if s.recipe.master_bytes else 2
    row = program.ids().index("m-1/O//optimizer#0")
    assert program.memory().terms_at(row)["temporary"] == copies * 4 * 128 * 64
    assert rank_memories(s)[0].peaks[-1] == program.memory().totals[row]

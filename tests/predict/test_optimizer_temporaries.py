"""What the optimizer's kernel holds while it runs, under every way of sharing its state."""

import pytest

import playbook as pb

MODEL = pb.model("toy-15m")
"""Its largest parameter is a table of 8 192 rows of 384."""


def at_the_step(zero, name, kernel):
    """Bytes by term while the optimizer runs."""
    work = pb.Workload(sequence=64, recipe=name, optimizer_kernel=kernel)
    s = pb.Scenario(MODEL, work, pb.Layout(dp=4, zero=zero), framework="torch")
    walk = pb.program(s).memory()
    program = walk.program
    (row,) = [row for row in range(len(program)) if program.id(row).endswith("/optimizer#0")]
    return walk.terms_at(row)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_foreach_copies_what_the_rank_updates(zero):
    # FP32: 8 bytes of moments for each updated element, 4 of the copy.
    held = at_the_step(zero, "fp32", "foreach")
    assert held["temporary"] == held["optimizer"] // 2
    assert "temporary" not in at_the_step(zero, "fp32", "fused")


@pytest.mark.parametrize(("zero", "rows"), [(0, 8192), (3, 2048)])
def test_the_for_loop_holds_two_copies_of_one_parameter(zero, rows):
    assert at_the_step(zero, "fp32", "for-loop")["temporary"] == 2 * 4 * rows * 384


@pytest.mark.parametrize(("zero", "rows"), [(0, 8192), (3, 2048)])
@pytest.mark.parametrize(("kernel", "copies"), [("fused", 1), ("foreach", 2), ("for-loop", 3)])
def test_masters_take_a_wide_gradient_at_a_time_and_what_the_kernel_needs(zero, rows, kernel, copies):
    assert at_the_step(zero, "bf16-fp32master", kernel)["temporary"] == copies * 4 * rows * 384

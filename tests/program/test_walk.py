import numpy as np

import playbook as pb
from playbook.program.walk import block_name, walk
from playbook.tables import MEMORY, TERMS


def naive(program):
    """The plain walk: for every row, add up what is alive."""
    held = program.held
    levels = np.zeros((len(program), len(TERMS)))
    for row in range(len(program)):
        alive = (held.birth <= row) & (held.death >= row)
        np.add.at(levels[row], program.terms[alive], program.sizes[alive])
    return levels


def test_the_walk_is_the_sum_of_what_is_alive_at_each_row(scenario):
    program = pb.program(scenario(dp=2, zero=3, recompute="full", global_batch=4))
    assert (walk(program).levels == naive(program)).all()


def test_terms_add_up_to_the_peak(scenario):
    found = walk(pb.program(scenario("transformers", dp=2, zero=3, recipe="fsdp2-mixed")))
    assert sum(found.terms.values()) == found.peak_bytes == int(found.totals.max())


def test_the_table_has_one_row_a_term_of_the_peak(scenario):
    table = walk(pb.program(scenario())).table
    assert tuple(table.columns) == MEMORY
    assert table["bytes"].sum() == walk(pb.program(scenario())).peak_bytes
    assert set(table["source"]) == {"formula"}


def test_the_curve_keeps_the_peak_however_few_points(scenario):
    found = walk(pb.program(scenario(dp=2, zero=3)))
    for points in (1, 7, 160, 10_000):
        curve = found.curve(points)
        assert curve.levels[curve.peak_index].sum() == found.peak_bytes
        assert len(curve.labels) == len(curve.phases) == len(curve.levels) <= points + 1
        assert f"{curve.phases[curve.peak_index]} {curve.labels[curve.peak_index]}" == found.instant


def test_bytes_left_after_a_row_exclude_what_dies_with_it(scenario):
    program = pb.program(scenario())
    found = walk(program)
    last_forward = int(np.flatnonzero(program.rows.phase == 0)[-1])
    assert found.left_after(last_forward) <= int(found.totals[last_forward])
    assert found.left_after(len(program) - 1) == sum(found.state.values())


def test_recompute_counts_as_backward_in_a_phases_peak(scenario):
    found = walk(pb.program(scenario("transformers", dp=2, zero=3, recompute="full", recipe="fsdp2-mixed")))
    phases = found.program.rows.phase
    assert found.peak_of("B") == int(found.totals[(phases == 1) | (phases == 2)].max())
    assert found.peak_of("F", microbatch=0) == int(found.totals[phases == 0].max())


def test_instants_name_the_layer_or_the_module_or_the_root():
    assert [block_name(owner) for owner in ("layers.12.mlp.up_proj", "norm", "")] == [
        "layers.12",
        "norm",
        "root",
    ]

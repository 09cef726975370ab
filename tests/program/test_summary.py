"""Summaries compose exactly: action resolution agrees with the full walk to the byte."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.frameworks import policies
from playbook.predict.stages import context, lay, program_of, rank_memories
from playbook.program.summary import Summary, of_events, summarise
from playbook.spec import Layout, Scenario, Workload, cluster
from tests import shapes

SMALL = replace(shapes.SMALL, layers=6)


def ints(*values):
    import numpy as np

    return np.array(values, dtype=np.int64)


def test_a_stretch_of_rows_by_hand():
    # Row 0 bears 5 and 3, row 1 bears 4; the 3 dies with row 0, the 5 with row 1.
    found = of_events(2, (ints(0, 0, 1), ints(0, 0, 1), ints(5, 3, 4)), (ints(0, 1), ints(0, 0), ints(3, 5)))
    assert (found.peak, found.change.sum()) == (9, 4)
    assert found.at_peak[:2].tolist() == [5, 4]


def test_composition_adds_changes_and_takes_the_higher_peak():
    import numpy as np

    one = Summary(change=np.array([2.0]), peak=5, at_peak=np.array([5.0]))
    two = Summary(change=np.array([-2.0]), peak=4, at_peak=np.array([4.0]))
    both = one.then(two)
    assert (both.change[0], both.peak, both.at_peak[0]) == (0, 6, 6)
    assert two.then(one).peak == 4


@pytest.mark.parametrize("framework", sorted(policies()))
def test_one_run_summarised_is_the_walk_of_its_rows(framework):
    s = Scenario(
        SMALL,
        Workload(sequence=32, recipe="fp32"),
        Layout(dp=2, zero=3),
        cluster("laptop"),
        framework=framework,
    )
    stage = lay(s, 0, context(s))
    walk = program_of(s).memory()
    whole = summarise(stage, "F").then(summarise(stage, "B")).then(summarise(stage, "O"))
    assert walk.peak_bytes == sum(walk.state.values()) + whole.peak
    assert whole.change.sum() == 0


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["textbook", "torch"]),
    st.fixed_dictionaries(
        {
            "dp": st.sampled_from([1, 2, 3]),
            "tp": st.sampled_from([1, 2]),
            "pp": st.sampled_from([1, 2, 3]),
            "zero": st.sampled_from([0, 3]),
            "reshard": st.booleans(),
            "schedule": st.sampled_from(["1f1b", "gpipe"]),
        }
    ),
    st.sampled_from(["none", "full"]),
    st.sampled_from(["every", "last"]),
    st.integers(3, 5),
)
def test_ranks_of_a_pipeline_agree_with_the_full_walk_to_the_byte(
    framework, layout, recompute, sync, microbatches
):
    shape = Layout(**layout)
    work = Workload(
        sequence=32,
        global_batch=shape.dp * microbatches,
        recompute=recompute,
        recipe="fp32",
        gradient_sync=sync,
        optimizer_kernel="foreach",
    )
    s = Scenario(SMALL, work, shape, cluster("laptop"), framework=framework)
    found = rank_memories(s)
    for stage, memory in enumerate(found):
        walk = program_of(s, shape.rank(pp=stage)).memory()
        assert (memory.peak_bytes, memory.terms) == (walk.peak_bytes, walk.terms)


def test_uneven_stages_and_chunks_agree_too():
    shape = Layout(pp=2, chunks=2, schedule="interleaved-1f1b", stage_layers=(1, 2, 1, 2), dp=2, zero=3)
    work = Workload(sequence=32, global_batch=8, optimizer_kernel="foreach", recipe="fp32")
    for framework in ("textbook", "torch"):
        s = Scenario(SMALL, work, shape, cluster("laptop"), framework=framework)
        for stage, memory in enumerate(rank_memories(s)):
            walk = program_of(s, shape.rank(pp=stage)).memory()
            assert (memory.peak_bytes, memory.terms) == (walk.peak_bytes, walk.terms)

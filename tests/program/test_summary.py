"""Summaries compose exactly: action resolution agrees with the full walk to the byte."""

from dataclasses import replace

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from playbook.frameworks import policies
from playbook.predict.orders import pipeline
from playbook.predict.stages import context, lay, program_of, rank_memories
from playbook.program.assemble import assemble
from playbook.program.order import Run
from playbook.program.summary import Summary, of_events, rank_memory, summarise
from playbook.spec import Layout, Scenario, Workload, cluster
from playbook.spec.layout import SCHEDULES, V_SCHEDULES
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


def one_that_runs(framework):
    """A scenario of two ranks that the framework does not refuse."""
    for recipe, zero in (("fp32", 3), ("bf16-fp32grad", 1), ("fsdp2-mixed", 3), ("bf16-fp32master", 2)):
        work, layout = Workload(sequence=32, recipe=recipe), Layout(dp=2, zero=zero)
        s = Scenario(SMALL, work, layout, cluster("laptop"), framework=framework)
        try:
            context(s)
        except ValueError:
            continue
        return s
    raise AssertionError(f"{framework} refuses every recipe")


@pytest.mark.parametrize("framework", sorted(policies()))
def test_one_run_summarised_is_the_walk_of_its_rows(framework):
    s = one_that_runs(framework)
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


SEVERAL_CHUNKS = (*V_SCHEDULES, "interleaved-1f1b", "looped-bfs", "interleaved-zero-bubble")


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(SCHEDULES),
    st.integers(2, 4),
    st.integers(1, 9),
    st.sampled_from(["none", "full"]),
    st.sampled_from([{}, {"dp": 2}, {"dp": 2, "zero": 3}, {"tp": 2, "sequence_parallel": True}]),
    st.data(),
)
def test_every_schedule_agrees_with_uneven_stages_too(schedule, pp, microbatches, recompute, more, data):
    chunks = 2 if schedule in SEVERAL_CHUNKS else 1
    uneven = data.draw(st.lists(st.integers(1, 3), min_size=pp * chunks, max_size=pp * chunks))
    shape = Layout(pp=pp, chunks=chunks, schedule=schedule, stage_layers=tuple(uneven), **more)
    work = Workload(sequence=32, global_batch=shape.dp * microbatches, recompute=recompute, recipe="fp32")
    framework = data.draw(st.sampled_from(["textbook", "torch"]))
    s = Scenario(replace(SMALL, layers=sum(uneven)), work, shape, cluster("1x32-h100"), framework=framework)
    try:
        pipeline(s)
    except ValueError:
        reject()
    for rank, memory in enumerate(rank_memories(s)):
        walk = program_of(s, shape.rank(pp=rank)).memory()
        assert (memory.peak_bytes, memory.terms) == (walk.peak_bytes, walk.terms)
        assert walk.left_after(len(walk.totals) - 1) == sum(walk.state.values())


def test_a_b_between_i_and_w_may_be_the_first_of_one_and_not_of_the_other():
    # Gradients of weights come with W and B, what passes on with I and B.
    s = Scenario(
        SMALL,
        Workload(sequence=32, global_batch=6, recipe="fp32"),
        Layout(pp=2, dp=2, zero=3, reshard=False),
        cluster("laptop"),
        framework="torch",
    )
    order = [
        *(Run("F", 1, mb) for mb in range(3)),
        *(Run("I", 1, 0), Run("B", 1, 1), Run("W", 1, 0), Run("I", 1, 2), Run("W", 1, 2)),
    ]
    stage = lay(s, 1, context(s))
    walk = assemble({1: stage}, order).memory()
    found = rank_memory({1: stage}, order)
    assert (found.peak_bytes, found.terms) == (walk.peak_bytes, walk.terms)

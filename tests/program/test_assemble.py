"""A program of hand-made blocks, small enough to lay and walk on paper."""

import pytest

from playbook.program.assemble import assemble
from playbook.program.block import Block, Tensor
from playbook.program.lay import Stage
from playbook.program.op import END, START, At, Op, rows
from playbook.program.order import Run, accumulate


def ends():
    first = Block(
        name="embedding",
        forward=rows([Op(owner="embed", op="look")]),
        backward=rows([Op(owner="embed", op="back", phase="B")]),
    )
    last = Block(
        name="head",
        forward=rows([Op(owner="head", op="mm")]),
        backward=rows([Op(owner="head", op="mm", phase="B")]),
        tensors=(
            Tensor(name="logits", term="logits", bytes=7, birth=At("F"), fwd_end=At("F"), bwd_end=At("B")),
        ),
    )
    return first, last


def layer(**more):
    saved = Tensor(
        name="saved",
        term="activations",
        bytes=10,
        birth=At("F", "/up#0"),
        fwd_end=At("F", "/down#0"),
        bwd_end=At("B", "/up#0"),
    )
    passing = Tensor(
        name="passing", term="temporary", bytes=3, birth=At("F", "/up#0"), fwd_end=At("F", "/down#0")
    )
    more.setdefault("tensors", (saved, passing))
    return Block(
        name="layer",
        layered=True,
        forward=rows([Op(owner="", op="up"), Op(owner="", op="down")]),
        backward=rows([Op(owner="", op="down", phase="B"), Op(owner="", op="up", phase="B")]),
        **more,
    )


def stage(block, layers=2):
    first, last = ends()
    return Stage((first, *[block] * layers, last), [-1, *range(layers), -1])


def levels(program):
    return program.memory().totals.tolist()


def test_rows_lie_in_depth_order_forward_and_in_reverse_backward():
    program = assemble({0: stage(layer())}, accumulate(1))
    assert program.ids() == [
        "m0/F/embed/look#0",
        "m0/F/layers.0/up#0",
        "m0/F/layers.0/down#0",
        "m0/F/layers.1/up#0",
        "m0/F/layers.1/down#0",
        "m0/F/head/mm#0",
        "m0/B/head/mm#0",
        "m0/B/layers.1/down#0",
        "m0/B/layers.1/up#0",
        "m0/B/layers.0/down#0",
        "m0/B/layers.0/up#0",
        "m0/B/embed/back#0",
        "m-1/O//optimizer#0",
    ]


def test_births_take_effect_at_the_start_of_a_row_and_deaths_after_it():
    program = assemble({0: stage(layer())}, accumulate(1))
    assert levels(program) == [0, 13, 13, 23, 23, 27, 27, 20, 20, 10, 10, 0, 0]


def test_the_peak_its_row_and_its_terms_come_out_together():
    walk = assemble({0: stage(layer())}, accumulate(1)).memory()
    assert (walk.peak_bytes, walk.peak_row, walk.instant) == (27, 5, "F head")
    assert walk.terms == {"activations": 20, "logits": 7}


def test_micro_batches_follow_each_other():
    program = assemble({0: stage(layer())}, accumulate(2))
    once = [0, 13, 13, 23, 23, 27, 27, 20, 20, 10, 10, 0]
    assert levels(program) == [*once, *once, 0]
    assert program.microbatch.tolist() == [0] * 12 + [1] * 12 + [-1]


def test_two_micro_batches_in_flight_add_up():
    order = [Run("F", 0, 0), Run("F", 0, 1), Run("B", 0, 0), Run("B", 0, 1)]
    walk = assemble({0: stage(layer())}, order).memory()
    assert walk.peak_bytes == 27 + 27


def test_a_tensor_of_the_step_lives_from_the_first_backward_to_the_last():
    kept = Tensor(
        name="sum", term="gradients", bytes=5, birth=At("B", "/up#0"), bwd_end=At("B", END), when="step"
    )
    program = assemble({0: stage(layer(tensors=(kept,)), layers=1)}, accumulate(2))
    with_logits = [0, 0, 0, 7, 7, 0, 5, 5]
    assert levels(program) == [*with_logits, 5, 5, 5, 12, 12, 5, 5, 0, 0]


def test_a_tensor_that_dies_in_the_optimizer_segment_outlives_the_last_backward():
    kept = Tensor(
        name="sum", term="gradients", bytes=5, birth=At("B", "/up#0"), bwd_end=At("O", END), when="step"
    )
    program = assemble({0: stage(layer(tensors=(kept,)), layers=1)}, accumulate(1))
    assert levels(program) == [0, 0, 0, 7, 7, 0, 5, 5, 5]
    assert program.memory().state == {}


def test_state_is_there_at_every_row_and_after_the_step():
    state = Tensor(name="weights", term="parameters", bytes=4, birth=At("S"))
    walk = assemble({0: stage(layer(tensors=(state,)), layers=3)}, accumulate(1)).memory()
    assert set(walk.levels.sum(axis=1).tolist()) == {12.0, 19.0}
    assert walk.state == {"parameters": 12}


@pytest.mark.parametrize(
    ("when", "expected"),
    [("first", [5, 0, 0]), ("last", [0, 0, 5]), ("later", [0, 5, 5]), ("every", [5, 5, 5])],
)
def test_rows_and_tensors_are_filtered_by_micro_batch(when, expected):
    block = Block(
        name="layer",
        layered=True,
        forward=rows([Op(owner="", op="up"), Op(owner="", op="sync", when=when)]),
        backward=rows([Op(owner="", op="up", phase="B")]),
        tensors=(
            Tensor(
                name="x",
                term="temporary",
                bytes=5,
                birth=At("F", "/sync#0"),
                fwd_end=At("F", "/sync#0"),
                when=when,
            ),
        ),
    )
    program = assemble({0: stage(block, layers=1)}, accumulate(3))
    synced = [program.microbatch[row] for row, text in enumerate(program.ids()) if "sync" in text]
    assert synced == [mb for mb, size in enumerate(expected) if size]
    found = [
        program.memory().levels[(program.microbatch == mb) & (program.rows.phase == 0), 8].max()
        for mb in range(3)
    ]
    assert found == expected


def test_a_prefetched_row_keeps_its_owner_and_runs_in_the_next_block():
    moved = Op(owner="", op="gather", phase="B", issue=At("B", "/down#0", 1, otherwise=START))
    base = layer()
    block = Block(
        name="layer",
        layered=True,
        forward=base.forward,
        backward=rows([moved, *base.backward]),
        tensors=(
            Tensor(
                name="flat", term="unsharded", bytes=1, birth=At("B", "/gather#0"), bwd_end=At("B", "/down#0")
            ),
        ),
    )
    program = assemble({0: stage(block)}, accumulate(1))
    backward = [text for text in program.ids() if "/B/" in text]
    assert backward == [
        "m0/B/layers.1/gather#0",
        "m0/B/head/mm#0",
        "m0/B/layers.1/down#0",
        "m0/B/layers.0/gather#0",
        "m0/B/layers.1/up#0",
        "m0/B/layers.0/down#0",
        "m0/B/layers.0/up#0",
        "m0/B/embed/back#0",
    ]
    unsharded = program.memory().levels[:, 6].tolist()
    assert unsharded[6:14] == [1, 1, 1, 1, 1, 1, 0, 0]


def test_a_place_outside_the_stage_is_its_end():
    gone = Tensor(name="x", term="temporary", bytes=2, birth=At("F", START, -5), fwd_end=At("F", END, 5))
    program = assemble({0: stage(layer(tensors=(gone,)), layers=1)}, accumulate(1))
    assert levels(program)[:4] == [2, 2, 2, 9]


def test_a_row_that_no_block_has_is_named():
    wrong = Tensor(name="x", term="temporary", bytes=2, birth=At("F", "/nothing#0"), fwd_end=At("F", END))
    with pytest.raises(ValueError, match=r"block 'layer' has no row '/nothing#0' in segment F"):
        assemble({0: stage(layer(tensors=(wrong,)))}, accumulate(1))

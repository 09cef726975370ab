"""Where tensors of a hand-made block live once its backward is split."""

from playbook.program.block import Block, Tensor
from playbook.program.lay import Stage
from playbook.program.lifetimes import Lifetimes, ends_of, once
from playbook.program.op import At, Op, rows
from playbook.program.order import Run


def stage():
    """Forward of one row; backward of a product for the input and one for the weight."""
    back = [Op(owner="", op="in", phase="B"), Op(owner="", op="weight", phase="B", for_weights=True)]
    saved = Tensor(
        name="saved",
        term="activations",
        bytes=4,
        birth=At("F", "/up#0"),
        fwd_end=At("F", "/up#0"),
        bwd_end=At("B", "/in#0"),
        weight_end=At("B", "/weight#0"),
    )
    kept = Tensor(
        name="kept",
        term="temporary",
        bytes=2,
        birth=At("B", "/in#0"),
        weight_end=At("B", "/weight#0"),
        split_only=True,
    )
    total = Tensor(
        name="sum",
        term="gradients",
        bytes=3,
        birth=At("B", "/weight#0"),
        bwd_end=At("O", "/optimizer#0"),
        when="step",
    )
    block = Block(
        name="layer", forward=rows([Op(owner="", op="up")]), backward=rows(back), tensors=(saved, kept, total)
    )
    return Stage([block], [0])


def spans(order):
    """Name, birth and death of every tensor."""
    laid = stage()
    held = Lifetimes({0: laid}, order).held()
    names = [laid.templates[index].name for index in held.template]
    return sorted(zip(names, held.birth.tolist(), held.death.tolist(), strict=True))


def test_a_backward_in_one_has_no_tensor_that_only_waits():
    assert spans([Run("F", 0, 0), Run("B", 0, 0)]) == [("saved", 0, 1), ("sum", 2, 3)]


def test_what_w_reads_lives_until_then():
    order = [Run("F", 0, 0), Run("I", 0, 0), Run("F", 0, 1), Run("W", 0, 0), Run("I", 0, 1), Run("W", 0, 1)]
    assert spans(order) == [("kept", 1, 3), ("kept", 4, 5), ("saved", 0, 3), ("saved", 2, 5), ("sum", 3, 6)]


def test_the_step_has_one_sum_whether_a_micro_batch_splits_or_not():
    order = [Run("F", 0, 0), Run("I", 0, 0), Run("F", 0, 1), Run("B", 0, 1), Run("W", 0, 0)]
    assert spans(order) == [("kept", 1, 5), ("saved", 0, 5), ("saved", 2, 3), ("sum", 4, 6)]


def test_tensors_of_the_step_are_told_from_those_of_a_micro_batch():
    tensors = stage().tensors
    assert once(tensors).tolist() == [False, True]
    assert [column.tolist() for column in ends_of(tensors, birth=True)] == [[1, 2], [0, 1]]

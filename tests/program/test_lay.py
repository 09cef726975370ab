import numpy as np

from playbook.program.block import Block, Tensor
from playbook.program.lay import Stage
from playbook.program.op import END, At, Op, rows
from playbook.program.order import BACKWARD, FORWARD, STATE
from playbook.tables import TERMS


def stage():
    first = Block(
        name="embedding",
        forward=rows([Op(owner="e", op="look")]),
        backward=rows([Op(owner="e", op="back", phase="B")]),
    )
    held = (
        Tensor(name="w", term="parameters", bytes=4, birth=At("S")),
        Tensor(
            name="x",
            term="activations",
            bytes=7,
            birth=At("F", END, -1),
            fwd_end=At("F", "/mm#0"),
            bwd_end=At("B", "/mm#0"),
        ),
    )
    layer = Block(
        name="layer",
        layered=True,
        forward=rows([Op(owner="", op="mm")]),
        backward=rows([Op(owner="", op="mm", phase="B")]),
        tensors=held,
    )
    return Stage((first, layer, layer), [-1, 0, 1])


def test_equal_layers_are_one_template():
    found = stage()
    assert [block.name for block in found.unique] == ["embedding", "layer"]
    assert (found.kinds.tolist(), found.first_of) == ([0, 1, 1], [0, 1])
    assert [tensor.name for tensor in found.templates] == ["w", "x"]


def test_each_template_tensor_is_spread_over_its_layers():
    tensors = stage().tensors
    assert tensors.template.tolist() == [0, 0, 1, 1]
    assert tensors.size.tolist() == [4, 4, 7, 7]
    assert [TERMS[code] for code in tensors.term] == ["parameters"] * 2 + ["activations"] * 2
    assert tensors.birth_segment.tolist() == [STATE, STATE, FORWARD, FORWARD]
    assert tensors.birth_row.tolist() == [0, 0, 0, 1]
    assert tensors.death_segment.tolist() == [STATE, STATE, BACKWARD, BACKWARD]
    assert tensors.death_row.tolist() == [0, 0, 1, 0]


def test_rows_of_all_segments_share_one_list_of_names():
    found = stage()
    assert {letter: len(rows_of) for letter, rows_of in found.rows.items()} == {"F": 3, "B": 3, "O": 1}
    names = list(found.names.ops)
    assert names[int(found.rows["F"].op[1])] == names[int(found.rows["B"].op[0])] == "mm"
    assert np.array_equal(found.rows["B"].layer, [1, 0, -1])

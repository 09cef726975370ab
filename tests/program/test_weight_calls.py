"""W call by call: its order, what each call computes again, and how long copies live (counted by hand)."""

import playbook as pb
from playbook.predict.stages import blocks_of, context, lay
from playbook.program.ids import PHASES
from playbook.program.lay import Stage
from playbook.program.summary import summarise
from playbook.program.weight_calls import named
from playbook.tables import TERMS
from tests.shapes import SMALL, scenario_of

TOKENS = 32
MODULES = (
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)


def split(**fields):
    return scenario_of(
        "torch", SMALL, **{"pp": 2, "schedule": "zb-h1", "recipe": "fp32", "kernels": "cpu", **fields}
    )


def parts_of_w(program, microbatch=0):
    """Phase and module of the rows of a micro-batch's W, neighbours folded."""
    ids = [op.split("/") for op in program.ids() if op.startswith(f"m{microbatch}/")]
    first = next(place for place, part in enumerate(ids) if part[1] == "W")
    begin = max((place for place in range(first) if ids[place][1] == "I"), default=0) + 1
    found = []
    for _, phase, owner, *_ in ids[begin:]:
        part = phase if phase == "R" else owner
        if not found or found[-1] != part:
            found.append(part)
    return found


def test_weights_come_in_the_order_of_the_module():
    names = [f"layers.{layer}.{module}" for layer in (2, 3) for module in MODULES]
    assert parts_of_w(pb.program(split(), 1)) == [*names, "norm", "lm_head"]


def test_a_layer_is_computed_again_before_each_of_its_weights():
    names = [f"layers.{layer}.{module}" for layer in (2, 3) for module in MODULES]
    found = parts_of_w(pb.program(split(recompute="full"), 1))
    assert found == [*(part for name in names for part in ("R", name)), "norm", "lm_head"]


def test_a_backward_in_one_computes_it_again_once():
    s = split(recompute="full")
    stage = lay(s, 1, context(s))
    rows = {letter: stage.segment(letter).phase[stage.kept(letter)] for letter in "BIW"}
    count = {letter: int((phase == PHASES.index("R")).sum()) for letter, phase in rows.items()}
    assert count["B"] == count["I"] > 0
    assert count["W"] == len(MODULES) * count["I"]


def test_the_first_stage_computes_it_again_once():
    found = parts_of_w(pb.program(split(recompute="full"), 0))
    assert found.count("R") == 2


def test_nothing_that_i_computed_again_is_left_for_w():
    s = split(recompute="full")
    layer = Stage([blocks_of(s, 1, context(s))[2]], [3])
    left = summarise(layer, "F").change + summarise(layer, "I").change
    assert left[TERMS.index("activations")] == 4 * TOKENS * 64  # the layer's input


def test_copies_are_named_by_their_call():
    assert named("R:self_attn/sdpa#0", 2) == "R2:self_attn/sdpa#0"

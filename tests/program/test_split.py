"""Backward in two parts: what each runs, what lives between them, and that together they are backward."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb
from playbook.predict.stages import blocks_of, context, lay
from playbook.program.assemble import assemble
from playbook.program.ids import PHASES
from playbook.program.lay import Stage
from playbook.program.order import ONLY, Run, Turn
from playbook.program.summary import summarise
from playbook.tables import TERMS
from tests.program.test_assemble import ends
from tests.shapes import SMALL, scenario_of

GPT = replace(SMALL, name="gpt", norm="layer", gated=False, kv_heads=4, positions=64, ffn=256)
TOKENS = 32
TURNS = [Turn(first, last, first, last) for first in (True, False) for last in (True, False)]


def between(stage, turn=ONLY):
    """Bytes by term that a micro-batch leaves from the end of its I to the start of its W, state aside."""
    return summarise(stage, "F", turn).change + summarise(stage, "I", turn).change


def scenario_in_a_pipeline(framework="textbook", model=SMALL, **fields):
    return scenario_of(framework, model, **{"pp": 2, "schedule": "zb-h1", **fields})


def middle_layer(s):
    """A stage that is one layer alone, so that only its own bytes count."""
    return Stage([blocks_of(s, 0, context(s))[1]], [0])


class TestBytesBetweenTheParts:
    """One layer of 64, 4 heads of 16, 32 tokens, two bytes a value."""

    def test_a_gpt_layer_keeps_32_s_b_h_as_in_zero_bubbles_table_1(self):
        s = scenario_of(model=GPT)
        kept = between(middle_layer(s))
        assert kept.sum() == 32 * TOKENS * 64

    def test_a_llama_layer_keeps_its_products_inputs_and_output_gradients(self):
        # Inputs: two norms' outputs 2h each, attention's output 2ak, the activation 2f. Gradients: q 2ak,
        # k and v 2gk each, o 2h, gate and up 2f each, down 2h.
        inputs = 2 * 64 + 2 * 64 + 2 * 64 + 2 * 96
        gradients = 2 * 64 + 2 * 32 + 2 * 32 + 2 * 64 + 2 * 96 + 2 * 96 + 2 * 64
        kept = dict(zip(TERMS, between(middle_layer(scenario_of())), strict=True))
        assert (kept["activations"], kept["temporary"]) == (TOKENS * inputs, TOKENS * gradients)

    def test_tensor_parallelism_divides_what_it_divides_elsewhere(self):
        # Heads and features are halved, the norms' outputs and the gradients behind row-split products whole.
        halves = 2 * 64 + 2 * 96 + 2 * 64 + 2 * 32 + 2 * 32 + 2 * 96 + 2 * 96
        kept = between(middle_layer(scenario_of(tp=2)))
        assert kept.sum() == TOKENS * (halves // 2 + 4 * 2 * 64)

    def test_checkpointing_leaves_as_much_for_w_as_no_checkpointing(self):
        plain, full = (between(middle_layer(scenario_of(recompute=mode))) for mode in ("none", "full"))
        assert plain.sum() == full.sum()

    def test_torchs_graph_stays_whole_until_w(self):
        s = scenario_in_a_pipeline("torch", recipe="fp32", kernels="cpu")
        layer = Stage([blocks_of(s, 1, context(s))[2]], [3])
        saved, kept = summarise(layer, "F").change, between(layer)
        activations, temporary = TERMS.index("activations"), TERMS.index("temporary")
        assert kept[activations] == saved[activations]
        # Gradients of what comes out of q, k, v, o, gate, up and down, and of both norms.
        assert kept[temporary] == 4 * TOKENS * (64 + 32 + 32 + 64 + 96 + 96 + 64 + 2 * 64)

    def test_the_loss_of_torchs_last_stage_goes_with_i(self):
        s = scenario_in_a_pipeline("torch", recipe="fp32")
        stage = lay(s, 1, context(s))
        logits = between(stage)[TERMS.index("logits")]
        assert logits == 4 * TOKENS * 128  # the gradient of the logits, which the head's product still needs


class TestRows:
    def test_products_run_once_in_each_part(self):
        program = pb.program(scenario_in_a_pipeline(), 1)
        ids = program.ids()
        assert "m0/I/layers.2.mlp.up_proj/mm#0" in ids
        assert "m0/W/layers.2.mlp.up_proj/mm#0" in ids
        assert not [op for op in ids if "/B/" in op]

    def test_the_gradients_message_goes_out_of_i(self):
        ids = pb.program(scenario_in_a_pipeline(), 1).ids()
        assert "m0/I/stage1/send@pp#0" in ids
        assert "m0/I/stage0/receive@pp#0" in pb.program(scenario_in_a_pipeline(), 0).ids()

    def test_recomputed_rows_run_before_the_gradients_they_are_for(self):
        program = pb.program(scenario_in_a_pipeline(recompute="full"), 1)
        phases = [program.phase(row) for row in range(len(program)) if program.microbatch[row] == 0]
        runs = [phase for k, phase in enumerate(phases) if k == 0 or phase != phases[k - 1]]
        assert runs[0] == "F"
        assert runs[-1] == "W"
        assert "R" not in runs[runs.index("W") :]

    def test_collectives_for_inputs_stay_in_i_and_reductions_move_to_w(self):
        s = scenario_in_a_pipeline(tp=2, dp=2, zero=2, global_batch=4)
        found = pb.traffic(s, s.layout.rank(pp=1))
        assert {found.select(axis="tp", phase=phase).count > 0 for phase in "I"} == {True}
        assert found.select(axis="tp", phase="W").count == 0
        assert found.select(axis="dp", phase="I").count == 0
        assert found.select(axis="dp", collective="reduce_scatter", phase="W").count > 0

    def test_megatrons_second_gather_of_a_shard_runs_with_the_product_that_needs_it(self):
        s = scenario_in_a_pipeline(tp=2, sequence_parallel=True)
        found = pb.traffic(s, s.layout.rank(pp=1)).select(axis="tp", phase="W")
        assert found.by_collective.keys() == {"all_gather@tp"}
        assert found.count == 2 * (2 * 2 + 1)  # two micro-batches; two products a layer, two layers, the head

    def test_a_gathered_unit_is_freed_in_i_and_its_gradient_reduced_in_w(self):
        s = scenario_in_a_pipeline("torch", dp=2, zero=3, recipe="fsdp2-mixed", global_batch=4)
        ids = pb.program(s, s.layout.rank(pp=1)).ids()
        assert "m0/I/layers.3/resize_#0" in ids
        assert "m0/W/layers.3/reduce_scatter@dp#0" in ids
        assert "m0/W/layers.3/all_gather@dp#0" not in ids

    def test_torchs_first_stage_leaves_everything_to_w(self):
        program = pb.program(scenario_in_a_pipeline("torch", recipe="fp32"), 0)
        in_i = [op for op in program.ids() if op.startswith("m0/I/")]
        assert in_i == ["m0/I/stage0/receive@pp#0"]


LAYOUTS = st.fixed_dictionaries(
    {
        "dp": st.sampled_from([1, 2, 3]),
        "tp": st.sampled_from([1, 2]),
        "zero": st.sampled_from([0, 1, 3]),
        "reshard": st.booleans(),
        "recompute": st.sampled_from(["none", "full"]),
        "gradient_sync": st.sampled_from(["every", "last"]),
    }
)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["textbook", "torch"]),
    LAYOUTS,
    st.integers(0, 3),
    st.sampled_from(TURNS),
    st.booleans(),
)
def test_i_then_w_changes_every_term_as_backward_does(framework, fields, slot, turn, normed):
    model = replace(SMALL, qk_norm=normed, mlp_bias=normed and framework == "torch")
    fields = {**fields, "sequence_parallel": fields["tp"] > 1, "recipe": "fp32", "pp": 4, "schedule": "zb-h1"}
    s = scenario_of(framework, model, **fields, global_batch=4 * fields["dp"])
    stage = lay(s, slot, context(s))
    both = summarise(stage, "I", turn).then(summarise(stage, "W", turn))
    whole = summarise(stage, "B", turn)
    assert both.change.tolist() == whole.change.tolist()
    assert sum(stage.segment(letter).flops.sum() for letter in "IW") == stage.segment("B").flops.sum()
    assert sum(stage.segment(letter).payload.sum() for letter in "IW") == stage.segment("B").payload.sum()


def test_a_stage_may_split_some_micro_batches_and_not_others():
    s = scenario_in_a_pipeline()
    stage = lay(s, 1, context(s))
    order = [Run("F", 1, 0), Run("F", 1, 1), Run("I", 1, 0), Run("B", 1, 1), Run("W", 1, 0)]
    program = assemble({1: stage}, order)
    walk = program.memory()
    state = sum(walk.state.values())
    level = state + 2 * summarise(stage, "F").change.sum()
    for letter in "IBW":
        level += summarise(stage, letter).change.sum()
    assert level == state
    phases = {PHASES[code] for code in program.rows.phase[program.microbatch == 1]}
    assert phases == {"F", "B"}


def test_a_gradient_of_the_step_is_born_with_the_first_w_or_b_and_later_ones_are_added():
    s = scenario_in_a_pipeline("torch", recipe="fp32")
    stage = lay(s, 1, context(s))
    order = [
        *(Run("F", 1, mb) for mb in range(3)),
        *(Run("I", 1, 0), Run("B", 1, 1), Run("W", 1, 0), Run("I", 1, 2), Run("W", 1, 2)),
    ]
    program = assemble({1: stage}, order)
    names = np.array([tensor.name for tensor in program.templates])[program.held.template]
    born = program.held.birth[names == "lm_head.weight gradient"]
    assert [program.id(int(row)) for row in born] == ["m1/B/lm_head/mm#0"]
    later = program.held.birth[names == "lm_head.weight new gradient"]
    assert [program.id(int(row)) for row in later] == ["m0/W/lm_head/mm#0", "m2/W/lm_head/mm#0"]


def test_a_stage_without_layers_of_its_own_can_be_split():
    first, last = ends()
    stage = Stage((first, last), [-1, -1])
    program = assemble({0: stage}, [Run("F", 0, 0), Run("I", 0, 0), Run("W", 0, 0)])
    assert len(program) == 2 + 2 + 1


@pytest.mark.parametrize("letter", ["I", "W"])
def test_a_part_has_the_rows_of_backward_in_its_order(letter):
    s = scenario_in_a_pipeline()
    stage = lay(s, 1, context(s))
    rows, whole = stage.segment(letter), stage.segment("B")
    kept = np.flatnonzero(whole.for_weights == (letter == "W"))
    assert rows.op.tolist() == whole.op[kept].tolist()
    assert rows.layer.tolist() == whole.layer[kept].tolist()

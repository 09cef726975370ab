"""The controls of MemoryExplorer for schedule, stages, attention and loss: what they do, say and refuse."""

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

import playbook as pb
from playbook.cli import app
from playbook.pictures.memory_view import MemoryView
from playbook.pictures.pipeline_orders import TITLES
from widgets import MemoryExplorer
from widgets.memory_controls import FRAMEWORKS

pytestmark = pytest.mark.timeout(120)

PAPERS: dict[str, Any] = {
    "framework": "textbook",
    "ranks": 1,
    "zero": 0,
    "recompute": "none",
    "recipe": "bf16-fp32master",
}
TORCH = {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zero-bubble", "zbv", "dualpipe-v"}
"""Classes of torch.distributed.pipelining 2.11; ZB-H1 is its interleaved zero bubble with one chunk."""
HAVE = {
    "torch": TORCH | {"zb-h1"},
    "torchtitan": TORCH | {"zb-h1"},
    "megatron": {"1f1b", "interleaved-1f1b"},
    "deepspeed": {"1f1b"},
    "nanotron": {"1f1b", "gpipe"},  # its engines "1f1b" and "afab"
    "transformers": set(),
}
WHY = re.compile(
    r"Drawn by the papers' accounting in place of [\w -]+: "
    r"(.* has no schedule [\w-]+|.*framework '\w+' .*)\. "
)
OF_PIPELINES = {"schedule", "chunks", "stage_layers"}


def offered(explorer: MemoryExplorer) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in explorer.controls}


def drawn(explorer: MemoryExplorer) -> MemoryView:
    assert explorer._view is not None
    return explorer._view


def test_a_first_look_has_no_controls_of_pipelines_and_two_of_the_step_under_a_fold():
    explorer = MemoryExplorer()
    assert not OF_PIPELINES & set(offered(explorer))
    assert {offered(explorer)[name]["more"] for name in ("attention", "loss")} == {"More of the step"}


def test_all_twelve_schedules_are_offered_under_their_titles_beside_pipeline_ranks_only():
    explorer = MemoryExplorer("toy-15m", ranks=1)
    explorer.pp = 2
    assert OF_PIPELINES & set(offered(explorer)) == {"schedule", "stage_layers"}
    names = [words for _, words in offered(explorer)["schedule"]["options"]]
    assert len(names) == 12
    assert {"GPipe", "1F1B", "ZB-V", "DualPipe-V"} <= set(names)
    explorer.pp = 1
    assert not OF_PIPELINES & set(offered(explorer))


@pytest.mark.parametrize("name", TITLES)
def test_chunks_are_asked_for_where_a_schedule_takes_any_number(name):
    explorer = MemoryExplorer("toy-15m", ranks=1, pp=2, schedule=name, framework="textbook")
    takes = name in ("interleaved-1f1b", "looped-bfs", "interleaved-zero-bubble")
    assert ("chunks" in offered(explorer)) == takes
    # a V has two chunks on every rank, the others one
    held = 2 if takes or name in ("zbv", "v-half", "v-min", "dualpipe-v") else 1
    assert drawn(explorer).scenario.layout.chunks == held


def test_gpipe_keeps_every_micro_batch_where_1f1b_keeps_as_many_as_ranks_from_here_on():
    """Narayanan et al., 2021, section 2.2: m in flight under GPipe, p - r on rank r under 1F1B."""
    explorer = MemoryExplorer("llama-3.1-8b", pp=4, microbatches=16, **PAPERS)
    kept = {}
    for explorer.schedule in ("1f1b", "gpipe"):
        kept[explorer.schedule] = drawn(explorer).stages[1].terms["activations"]
    assert kept["gpipe"] / kept["1f1b"] == pytest.approx(16 / 3, rel=0.02)


def test_math_attention_keeps_the_scores_of_every_layer():
    explorer = MemoryExplorer("llama-3.1-8b", **PAPERS)
    flash = drawn(explorer).memory.walk.terms["activations"]
    explorer.attention = "math"
    # 32 layers x 32 heads: 4096 x 4096 probabilities in BF16 for flash attention's 4096 FP32 log-sum-exps
    more = 32 * 32 * (2 * 4096**2 - 4 * 4096)
    assert drawn(explorer).memory.walk.terms["activations"] - flash == more


def test_a_chunked_loss_keeps_the_logits_of_some_rows():
    explorer = MemoryExplorer("llama-3.2-1b", micro_batch=4, **{**PAPERS, "recompute": "full"})
    eager = drawn(explorer).memory
    # 4 x 4096 tokens against 1024 rows of 128 256 words in FP32
    assert eager.walk.terms["logits"] == 4 * 4 * 4096 * 128_256
    assert "a loss in pieces" in explorer.picture["warnings"][0]
    explorer.loss = "chunked"
    assert drawn(explorer).memory.walk.terms["logits"] == 4 * 1024 * 128_256
    assert drawn(explorer).memory.peak_bytes < eager.peak_bytes
    assert not any("a loss in pieces" in words for words in explorer.picture["warnings"])


def test_stages_hold_the_layers_that_were_typed_or_given_as_a_layout_takes_them():
    explorer = MemoryExplorer("llama-3.1-70b", ranks=8, tp=8, pp=4)
    assert offered(explorer)["stage_layers"]["remark"] == "Empty: 20 in each of 4 stages."
    explorer.stage_layers = "22,20,20,18"
    assert "remark" not in offered(explorer)["stage_layers"]
    held = [row["sub"] for row in explorer.picture["stages"]["rows"]]
    assert held == ["22 layers, embedding", "20 layers", "20 layers", "18 layers, head"]
    same = MemoryExplorer("llama-3.1-70b", ranks=8, tp=8, pp=4, stage_layers=(22, 20, 20, 18))
    assert drawn(same) == drawn(explorer)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ("22,20,20", "stage_layers has 3 numbers but pp=4 x chunks=1 = 4 stages; give 4 numbers"),
        ("22,20,20,20", "stage_layers add up to 82 but llama-3.1-70b has 80 layers"),
        ("22,20,20,many", "must be whole numbers with commas, such as 2,2,1,1"),
        ("80,0,0,0", "stage_layers=0 must be at least 1"),
    ],
)
def test_layers_that_do_not_fit_are_refused_under_their_field_and_the_picture_stays(layers, words):
    explorer = MemoryExplorer("llama-3.1-70b", ranks=8, tp=8, pp=4)
    before = explorer.picture
    explorer.stage_layers = layers
    assert explorer.refusal["control"] == "stage_layers"
    assert words in explorer.refusal["text"]
    assert explorer.picture == before


def test_a_field_that_has_to_change_is_there_where_another_control_is_refused():
    explorer = MemoryExplorer("toy-15m", ranks=1, pp=1, stage_layers="3,2,1")
    explorer.pp = 2
    assert explorer.refusal["control"] == "pp"
    assert "stage_layers has 3 numbers but pp=2" in explorer.refusal["text"]
    assert "stage_layers" in offered(explorer)
    explorer.stage_layers = "4,2"
    assert explorer.refusal == {}


def test_a_misspelt_schedule_is_refused_with_those_there_are_also_without_a_pipeline():
    with pytest.raises(ValueError, match="'zvb' is not a schedule; use one of 1f1b, .*zbv"):
        MemoryExplorer("toy-15m", schedule="zvb")


def test_an_order_of_a_file_is_drawn_and_stands_above_the_twelve(tmp_path):
    path = tmp_path / "mine.csv"
    pb.schedule("zbv", stages=2, microbatches=4).to_csv(path)
    explorer = MemoryExplorer("toy-15m", ranks=1, pp=2, microbatches=4, schedule=str(path))
    assert offered(explorer)["schedule"]["options"][0] == [str(path), "mine.csv"]
    twin = MemoryExplorer("toy-15m", ranks=1, pp=2, microbatches=4, schedule="zbv")
    assert drawn(explorer).memory.peak_bytes == drawn(twin).memory.peak_bytes
    assert explorer.picture["kick"] == "toy-15m · 2 ranks: pp 2 · mine.csv · training"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_draws_every_schedule_or_says_why_the_papers_stand_in(framework):
    shares_optimizer = framework in ("megatron", "deepspeed", "nanotron")
    zero, recipe = (1, "bf16-fp32grad") if shares_optimizer else (3, "fsdp2-mixed")
    given = {"zero": zero, "recipe": recipe, "sequence": 128, "microbatches": 4}
    explorer = MemoryExplorer("toy-15m", ranks=2, pp=2, framework=framework, **given)
    own = set()
    for explorer.schedule in TITLES:
        assert (explorer.refusal, explorer.error) == ({}, ""), explorer.schedule
        assert drawn(explorer).scenario.layout.schedule == explorer.schedule
        if drawn(explorer).asked:
            assert WHY.match(explorer.note), explorer.note
        else:
            own.add(explorer.schedule)
    assert own == HAVE.get(framework, set(TITLES))


@pytest.mark.parametrize(
    ("given", "control", "why"),
    [
        ({"pp": 2, "schedule": "v-half"}, "schedule", "torch has no schedule v-half"),
        (
            {"pp": 2, "schedule": "gpipe", "framework": "deepspeed", "zero": 1, "recipe": "fp32"},
            "schedule",
            "schedule='gpipe'; framework 'deepspeed' does not do that",
        ),
        ({"loss": "chunked"}, "loss", "loss='chunked' is not modelled for framework='torch'"),
        ({"attention": "math", "framework": "transformers"}, "attention", "attention='math': not in the"),
    ],
)
def test_a_choice_that_a_framework_has_not_says_with_what_to_compare(given, control, why):
    explorer = MemoryExplorer("toy-15m", ranks=2, **given)
    assert why in explorer.note
    assert offered(explorer)[control]["remark"].endswith("to compare, choose the papers as framework.")
    explorer.framework = "textbook"
    assert "remark" not in offered(explorer)[control]


def test_torchtitan_is_drawn_with_its_own_recipe_by_its_own_accounting():
    explorer = MemoryExplorer("toy-15m", ranks=2, framework="torchtitan")
    assert drawn(explorer).scenario.framework == "torchtitan"
    assert "remark" not in offered(explorer)["framework"]


@pytest.mark.parametrize(
    "given",
    [
        {"pp": 2, "schedule": "zbv", "stage_layers": "2,2,1,1", "microbatches": 4},
        {"pp": 2, "schedule": "interleaved-1f1b", "chunks": 3},
        {"attention": "math", "loss": "chunked", "framework": "textbook"},
    ],
)
def test_copies_carry_the_choices_and_give_the_same_peak(given):
    explorer = MemoryExplorer("toy-15m", ranks=2, recompute="none", sequence=512, **given)
    copies, shown = explorer.copies(), drawn(explorer).memory.peak_bytes
    made: dict[str, Any] = {}
    exec(copies["python"], made)  # the code that a reader pastes
    assert pb.training_memory(made["scenario"]).peak_bytes == shown
    assert pb.training_memory(pb.Scenario.from_json(copies["json"])).peak_bytes == shown
    words = copies["command"].split()
    told = CliRunner().invoke(app, [*words[1:], "--json"])
    assert json.loads(told.stdout)["peak_bytes"] == shown


def test_a_picture_of_another_schedule_does_not_say_1f1b():
    explorer = MemoryExplorer("toy-15m", ranks=2, pp=2, schedule="zbv", microbatches=16)
    step = explorer.picture["step"]
    words = json.dumps({**explorer.picture, "step": {"title": step["title"], "turns": step["turns"]}})
    assert "1f1b" not in words.lower()
    assert "ZB-V, 16 micro-batches" in explorer.picture["stages"]["title"][1]
    assert step["turns"] == "forward and both parts of backward of 16 micro-batches in turn"
    assert "1f1b" not in " ".join(one["help"] for one in explorer.controls).lower()


def test_a_real_step_says_where_its_attention_and_loss_are_others():
    explorer = MemoryExplorer("toy-15m", ranks=2, zero=0, recipe="fp32", attention="math")
    assert explorer.note.startswith("Run takes a real step of toy-15m, DDP on 2 ranks, sequence 128, fp32, ")
    assert "fp32, flash attention. Its" in explorer.note


def test_pipelines_of_pytorch_reduce_gradients_behind_the_last_micro_batch_and_say_so():
    """Its schedules have REDUCE_GRAD behind a stage's last backward, so that FSDP2 holds whole gradients."""
    explorer = MemoryExplorer(pp=4, tp=8, ranks=8)
    assert drawn(explorer).scenario.workload.gradient_sync == "last"
    grown = drawn(explorer).memory.peak_bytes
    assert "behind the last micro-batch" in offered(explorer)["microbatches"]["remark"]
    explorer.framework = "textbook"
    whole = 4 * 2.2e9  # FP32 gradients of 70B over pp 4 and tp 8, of which the papers count 1/8
    assert grown - drawn(explorer).memory.peak_bytes > whole * 7 / 8

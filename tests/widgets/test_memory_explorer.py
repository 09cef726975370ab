import json

import pytest

from playbook.pictures.models import model_choices
from playbook.pictures.words import bare, difference
from playbook.spec import presets
from widgets import MemoryExplorer

pytestmark = pytest.mark.timeout(120)

LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
"""As published for Llama 2 7B, without its name."""


def test_only_zero_3_fits_and_the_peak_is_named():
    explorer = MemoryExplorer()
    totals = [row["total"] / 1e9 for row in explorer.picture["bars"]["rows"]]
    # 16 bytes × 70.5537 billion; fsdp2-mixed keeps 4 + 4 + 8.
    assert totals == pytest.approx([1128.86, 573.25, 295.44, 17.64], abs=0.01)
    assert explorer.headline.startswith("Only ZeRO-3 fits in an H100, and its peak is")


def test_a_stage_that_the_framework_has_not_is_drawn_by_the_textbook_and_says_so():
    explorer = MemoryExplorer()
    explorer.zero = 2
    assert explorer.picture["step"]["title"][0].endswith(", by the papers' accounting")
    assert "PyTorch shares gradients only together with parameters" in explorer.note
    assert explorer.actions[0]["off"]
    assert explorer.refusal == {}


def test_levels_add_up_to_the_peak():
    import numpy as np

    step = MemoryExplorer(ranks=16).picture["step"]
    levels = np.frombuffer(step["levels"], "<u2").reshape(-1, len(step["terms"])) / 65535 * step["highest"]
    assert levels.sum(axis=1).argmax() == step["peak"]


def test_python_drives_the_controls():
    explorer = MemoryExplorer()
    explorer.ranks = 512
    assert explorer.picture["kick"] == "llama-3.1-70b · 512 ranks · training"


@pytest.mark.dist
def test_a_real_step_stands_beside_its_own_formula():
    explorer = MemoryExplorer(ranks=2, zero=0, recipe="fp32", recompute="none", sequence=64)
    before = explorer.picture["table"]["rows"][-1]
    assert before["measured"] == "not run"
    assert "toy-15m, DDP on 2 ranks, sequence 64, fp32" in before["note"]
    explorer.run(wait=True)
    row = explorer.picture["table"]["rows"][-1]
    assert row["measured"].endswith("MB")
    assert row["traced"].endswith("MB")
    assert [one["source"] for one in explorer.measured["rows"]] == ["formula", "traced", "measured"]
    assert explorer.measured["source"] == "tracked:gloo"


@pytest.mark.dist
def test_the_trace_button_traces_the_scenario_shown():
    explorer = MemoryExplorer("toy-15m", ranks=8, zero=3, recipe="fp32", recompute="none", sequence=64)
    before = explorer.picture["table"]["rows"][1]
    assert before["traced"] == "not traced"
    explorer.run(wait=True, button="trace")
    row = explorer.picture["table"]["rows"][1]
    assert row["difference"].startswith("traced ")
    # The formula is of the kernels of a GPU; the trace of a small model keeps a few small buffers more.
    assert abs(explorer.measured["trace"]["peak"] / explorer._view.memory.peak_bytes - 1) < 0.03


def test_a_framework_that_is_not_traced_offers_no_trace():
    explorer = MemoryExplorer(framework="transformers")
    assert explorer.actions[1]["off"]
    assert "tracer" in explorer.actions[1]["help"]


def test_pipeline_ranks_are_drawn_and_the_worst_one_is_named():
    explorer = MemoryExplorer(ranks=8, pp=4, tp=8, microbatches=16)
    stages, worst = explorer.picture["stages"], explorer._view.memory.worst_rank
    assert stages["title"][1].startswith(f"rank {worst['pp']} is the worst")
    assert explorer.picture["bars"]["title"][0].startswith(f"Model state of pipeline rank {worst['pp']}")
    assert explorer.picture["step"]["title"][0].endswith(
        f"on rank {worst['rank']}, pipeline rank {worst['pp']}"
    )
    # 16 micro-batches are too many stretches for the curve's points
    assert explorer.picture["step"]["spans"] == []
    assert explorer.picture["step"]["turns"] == "forward and backward of 16 micro-batches in turn"


def test_layers_that_do_not_divide_are_dealt_out_unevenly():
    explorer = MemoryExplorer("llama-3.1-405b", ranks=8, pp=4, tp=8)
    # 126 layers on 4 ranks
    layers = [row["sub"].split(" ")[0] for row in explorer.picture["stages"]["rows"]]
    assert layers == ["32", "32", "31", "31"]


def test_a_pasted_configuration_is_the_model_and_the_preset_says_that_it_is_not_in_use():
    explorer = MemoryExplorer()
    explorer.config = json.dumps(LLAMA_2_7B)
    assert explorer.picture["kick"] == "pasted llama · 64 ranks · training"
    # 16 bytes x 6 738 415 616 weights
    assert explorer.picture["bars"]["rows"][0]["total"] == 16 * 6_738_415_616
    idle = {one["name"]: one.get("idle") for one in explorer.controls}
    assert idle["model"] == "Not in use: the pasted config.json is the model."
    explorer.config = ""
    assert explorer.picture["kick"].startswith("llama-3.1-70b")
    assert not any("idle" in one for one in explorer.controls)


def test_gpt2_draws_at_once_and_its_sequence_says_that_it_is_capped():
    explorer = MemoryExplorer()
    explorer.model = "gpt2"
    assert explorer.refusal == {}
    said = {one["name"]: one.get("remark") for one in explorer.controls}
    assert said["sequence"] == "Drawn with 1\u2009024, the model's positions."
    assert explorer.sequence == 4096
    explorer.model = "llama-3.1-8b"
    assert not any("remark" in one for one in explorer.controls)


def test_sequence_parallelism_is_offered_beside_tensor_ranks_only():
    explorer = MemoryExplorer(ranks=8)
    assert "sequence_parallel" not in {one["name"] for one in explorer.controls}
    explorer.tp = 2
    offered = {one["name"]: one for one in explorer.controls}["sequence_parallel"]
    assert (offered["more"], offered["options"]) == ("More axes", [[True, "on"], [False, "off"]])
    split = explorer._view.memory.peak_bytes
    assert "--sequence-parallel" in explorer.copies()["command"]
    explorer.sequence_parallel = False
    assert explorer._view.memory.peak_bytes > split
    assert "--sequence-parallel" not in explorer.copies()["command"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('{"model_type": "llama",', "config is not JSON (Expecting property name"),
        ("[1, 2]", "config is a list, not an object; paste a whole config.json"),
        ('{"model_type": "llama", "hidden_size": 4096}', "key 'num_attention_heads' is missing"),
    ],
)
def test_a_pasted_mistake_is_answered_under_its_field_and_stays_there(config, words):
    explorer = MemoryExplorer()
    explorer.config = config
    assert words in explorer.refusal["text"]
    explorer.ranks = 8
    assert explorer.refusal["control"] == "config"
    assert words in explorer.refusal["text"]


def test_a_key_that_is_not_understood_is_named():
    explorer = MemoryExplorer(config=json.dumps({**LLAMA_2_7B, "surprise": 1}))
    assert explorer.picture["warnings"][-1].endswith("without a part in these numbers: surprise.")


def test_a_refused_degree_stands_under_its_control():
    explorer = MemoryExplorer("mixtral-8x7b", ep=8)
    explorer.ep = 16
    assert explorer.refusal["control"] == "ep"
    assert "does not divide experts=8" in explorer.refusal["text"]


def test_experts_are_drawn_by_the_papers_and_both_sentences_say_so():
    explorer = MemoryExplorer("mixtral-8x7b", ep=8)
    assert explorer.headline.startswith("The state of ZeRO-1, ZeRO-2 and ZeRO-3 fits in an H100")
    assert explorer.headline.endswith(", by the papers' accounting.")
    assert "in place of PyTorch, no buffers" in explorer.picture["step"]["title"][1]
    framework = next(one for one in explorer.controls if one["name"] == "framework")
    assert framework["remark"].startswith("Not in use: the papers' accounting is drawn in its place")
    assert "idle" not in framework
    assert explorer.note.startswith("Drawn by the papers' accounting in place of PyTorch: ")


def test_a_recorded_twin_fills_the_measured_column():
    explorer = MemoryExplorer("llama-3.2-1b", ranks=8, sequence=2048, micro_batch=2, recompute="none")
    twin = explorer._view.twin
    rows = {row["label"]: row for row in explorer.picture["table"]["rows"]}
    assert rows["peak"]["measured"] == bare(twin.peak_bytes)
    assert rows["peak"]["difference"] == difference(twin.peak_bytes, explorer._view.memory.peak_bytes)
    assert rows["reserved by the allocator"]["measured"] == bare(twin.reserved_bytes)
    assert rows["peak"]["by"] == "twin"
    assert rows["peak"]["source"].startswith("twin of rank 0 of 8, recorded on an NVIDIA H200, 20")
    assert explorer.picture["table"]["sources"]["measured"] == rows["peak"]["source"]
    assert explorer.picture["step"]["twin"]["peak"] == twin.peak_bytes


def test_the_allocators_band_is_a_row_and_the_papers_have_none():
    explorer = MemoryExplorer()
    memory = explorer._view.memory
    row = explorer.picture["table"]["rows"][2]
    # 4 to 8 bytes a weight of embedding and head, and up to 8 a logit
    root, logits = 2 * 128_256 * 8192 + 8192, 4096 * 128_256
    low, high = memory.peak_bytes + 4 * root, memory.peak_bytes + 8 * root + 8 * logits
    assert row["formula"] == f"{bare(low)}–{bare(high)}"
    explorer.framework = "textbook"
    assert "formula" not in explorer.picture["table"]["rows"][2]


def test_every_preset_gives_a_picture():
    explorer = MemoryExplorer(sequence=512)
    for name in presets.names("models"):
        explorer.model = name
        assert explorer.refusal == {}, (name, explorer.refusal)
        assert explorer.picture["kick"].startswith(name)


def test_models_are_offered_by_family_and_a_file_of_ones_own_above_them(tmp_path):
    explorer = MemoryExplorer()
    offered = next(one for one in explorer.controls if one["name"] == "model")["options"]
    assert ["llama-3.1-8b", "Llama 3.1 8B", "Llama, Meta"] in offered
    assert all(len(option) == 3 for option in offered)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(presets.load("models", "gpt2")["config"]))
    explorer.model = str(path)
    assert explorer.refusal == {}
    offered = next(one for one in explorer.controls if one["name"] == "model")["options"]
    assert offered[:2] == [[str(path), "mine.json"], list(model_choices()[0])]


def test_the_trace_of_a_pipeline_is_of_the_rank_that_is_drawn():
    explorer = MemoryExplorer("toy-15m", ranks=1, pp=2, zero=0, recipe="fp32", sequence=512)
    task = explorer.task("trace")
    assert task.args == (explorer._view.scenario, explorer._view.rank)

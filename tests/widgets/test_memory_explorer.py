import pytest

from widgets import MemoryExplorer

pytestmark = pytest.mark.timeout(120)


def test_only_zero_3_fits_and_the_peak_is_named():
    explorer = MemoryExplorer()
    totals = [row["total"] / 1e9 for row in explorer.picture["bars"]["rows"]]
    # 16 bytes × 70.5537 billion; fsdp2-mixed keeps 4 + 4 + 8.
    assert totals == pytest.approx([1128.86, 573.25, 295.44, 17.64], abs=0.01)
    assert explorer.headline.startswith("Only ZeRO-3 fits in an H100, and its peak is")


def test_a_stage_that_the_framework_has_not_is_drawn_by_the_textbook_and_says_so():
    explorer = MemoryExplorer()
    explorer.zero = 2
    assert "the papers' accounting" in explorer.picture["step"]["title"][1]
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

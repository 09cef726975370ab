import subprocess
import sys

import numpy as np
import pytest

from widgets import CollectiveExplorer, MemoryExplorer, PipelineExplorer
from widgets.raster import Sheet


def test_a_pipeline_figure_has_the_blocks_of_the_picture():
    explorer = PipelineExplorer(stages=2, microbatches=2, schedules=["1f1b"])
    figure = explorer.figure
    forward, backward = figure.data
    # 1F1B of two stages and two micro-batches, drawn by hand: forwards of 1, backwards of 2.
    assert np.asarray(forward.base).tolist() == [0, 1, 1, 4]
    assert np.asarray(forward.x).tolist() == [1, 1, 1, 1]
    assert np.asarray(backward.base).tolist() == [4, 7, 2, 5]
    assert list(backward.y) == ["rank 0", "rank 0", "rank 1", "rank 1"]
    assert explorer.picture["headline"][0] in figure.layout.title.text


def test_a_pipeline_figure_has_the_strips_of_a_run():
    explorer = PipelineExplorer(stages=2, microbatches=1, schedules=["1f1b"])
    run = {"start": np.array([0, np.nan, 1.1, np.nan], "<f4").tobytes()}
    run |= {"duration": np.array([1, np.nan, 1, np.nan], "<f4").tobytes(), "source": "emulated"}
    explorer.measured = {"schedules": {"1f1b": run}}
    strip = explorer.figure.data[-1]
    assert np.asarray(strip.base).tolist() == pytest.approx([0, 1.1])
    assert strip.name == "forward, emulated"


def test_the_halves_of_an_overlapped_pair_lie_over_each_other_in_the_figure():
    explorer = PipelineExplorer(schedules=["dualpipe-v"])
    forward = explorer.figure.data[0]
    kind = np.frombuffer(explorer.picture["schedules"][0]["kind"], "u1")
    halves = np.asarray(forward.width) == 0.4
    assert int(halves.sum()) == int(((kind & 8) > 0).sum())
    assert set(np.asarray(forward.offset).tolist()) == {-0.4}


def test_a_scatter_figure_has_the_points_and_the_cap_of_the_picture():
    explorer = PipelineExplorer(shown="scatter", cap=3.0)
    points, front = explorer.figure.data
    assert list(points.x) == [point["x"] for point in explorer.picture["scatter"]["points"]]
    assert list(points.y) == [point["y"] for point in explorer.picture["scatter"]["points"]]
    assert len(front.x) == len(explorer.picture["scatter"]["front"])
    assert explorer.figure.layout.shapes[0].x0 == 3.0


def test_a_collective_figure_has_the_lines_and_points_of_the_chart():
    explorer = CollectiveExplorer()
    explorer.measured = {"points": [[1024, 2e-3, None]], "source": "measured:gloo"}
    figure = explorer.figure
    lines = explorer.picture["chart"]["lines"]
    assert [list(trace.y) for trace in figure.data[:2]] == [line["seconds"] for line in lines]
    assert (figure.data[2].x, figure.data[2].y) == ((1024,), (2e-3,))


def test_a_memory_figure_has_the_state_and_the_levels_in_gigabytes():
    explorer = MemoryExplorer()
    figure = explorer.figure
    by_name = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    total = [sum(trace.x[place] for trace in by_name.values()) for place in range(4)]
    assert total == pytest.approx([row["total"] / 1e9 for row in explorer.picture["bars"]["rows"]])
    areas = [trace for trace in figure.data if trace.type == "scatter" and trace.stackgroup]
    peak = explorer.picture["step"]["peak"]
    stacked = sum(float(trace.y[peak]) for trace in areas)
    assert stacked == pytest.approx(explorer._view.memory.peak_bytes / 1e9, rel=1e-4)


def test_a_memory_figure_and_picture_have_the_pipeline_ranks():
    explorer = MemoryExplorer(ranks=8, pp=4, tp=8, microbatches=16)
    stages, figure = explorer.picture["stages"], explorer.figure
    bars = [
        trace for trace in figure.data if trace.type == "bar" and len(trace.y) == 4 and "rank 0" in trace.y[0]
    ]
    drawn = [sum(trace.x[place] for trace in bars) for place in range(4)]
    assert drawn == pytest.approx([row["total"] / 1e9 for row in stages["rows"]])
    assert drawn == pytest.approx([one.peak_bytes / 1e9 for one in explorer._view.memory.pipeline])
    assert bars[0].y[stages["worst"]] == f"rank {stages['worst']}, worst"
    assert any(stages["title"][0] in note.text for note in figure.layout.annotations)


def test_a_memory_figure_has_the_point_of_a_recorded_twin():
    explorer = MemoryExplorer("llama-3.2-1b", ranks=8, sequence=2048, micro_batch=2, recompute="none")
    point = explorer.figure.data[-1]
    assert point.y == (explorer._view.twin.peak_bytes / 1e9,)
    assert point.name.startswith("twin ")


def test_a_still_says_the_pipeline_ranks_and_the_twin_in_words(monkeypatch):
    said = []
    monkeypatch.setattr(Sheet, "text", lambda self, x, y, words, *rest, **more: said.append(words))
    explorer = MemoryExplorer(ranks=8, pp=4, tp=8, microbatches=16)
    assert explorer.png()[:8] == b"\x89PNG\r\n\x1a\n"
    for row in explorer.picture["stages"]["rows"]:
        worst = row["rank"] == explorer.picture["stages"]["worst"]
        assert row["name"] in said
        assert row["words"] + ("  worst" if worst else "") in said
    MemoryExplorer("llama-3.2-1b", ranks=8, sequence=2048, micro_batch=2, recompute="none").png()
    assert sum(words.startswith("twin ") for words in said) == 3


def test_plotly_is_loaded_only_when_a_figure_is_asked_for():
    code = "import sys, widgets; widgets.MemoryExplorer(); print(*({'plotly', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == "", done.stderr
    assert done.returncode == 0

"""PyTorch's generators as a second opinion on every order."""

from unittest import mock

import pytest
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

from playbook.program.schedule import schedule

SIZES = [(1, 2), (2, 2), (3, 3), (4, 4), (4, 8), (4, 10), (8, 16), (5, 7)]
SMALL = [(2, 1), (4, 3)]
"""Fewer micro-batches than ranks, which some of torch's schedules take."""
TWO_A_RANK = [(1, 2), (2, 4), (3, 7), (4, 8), (4, 11), (5, 12), (8, 16)]
"""At least as many micro-batches as stages, as torch's DualPipeV wants."""


def torch_order(name, stages, microbatches):
    """Each rank's actions as texts, without torch's bookkeeping actions."""
    ops = get_schedule_ops(name, stages, microbatches)
    rows = [[str(action) for action in row if action is not None] for row in ops]
    return [[text for text in row if text.replace("F", "B").replace("B", "").isdigit()] for row in rows]


def torch_multi_order(name, stages, microbatches, chunks):
    """The same of a schedule with any number of stages a rank, of stages that do nothing."""
    stage = mock.create_autospec(PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.submod, stage.num_stages = 0, stages, None, stages * chunks
    made = torch_schedules.get_schedule_class(name)([stage] * chunks, microbatches)
    rows = [made.pipeline_order[rank] for rank in range(stages)]
    return [[str(action) for action in row if action is not None] for row in rows]


def our_order(name, stages, microbatches, chunks=None):
    made = schedule(name, stages, microbatches, chunks, framework="torch")
    return [row.split(",") for row in made.to_csv().splitlines()]


def fix_last_rank(row):
    """Torch 2.13's 1F1B list counts the last rank's forwards from 1 (its runtime does not use the list)."""
    if "F0" in row[0]:
        return row
    return [f"{t.split('F')[0]}F{int(t.split('F')[1]) - 1}" if "F" in t else t for t in row]


@pytest.mark.parametrize(("stages", "microbatches"), SIZES)
@pytest.mark.parametrize(("ours", "theirs"), [("gpipe", "GPipe"), ("1f1b", "1F1B")])
def test_one_chunk_orders_equal_torchs(ours, theirs, stages, microbatches):
    expected = torch_order(theirs, stages, microbatches)
    expected[-1] = fix_last_rank(expected[-1])
    assert our_order(ours, stages, microbatches) == expected


@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize(("stages", "microbatches"), SIZES + SMALL)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("interleaved-1f1b", "Interleaved1F1B"),
        ("looped-bfs", "LoopedBFS"),
        ("interleaved-zero-bubble", "InterleavedZeroBubble"),
    ],
)
def test_orders_of_several_chunks_equal_torchs(ours, theirs, stages, microbatches, chunks):
    expected = torch_multi_order(theirs, stages, microbatches, chunks)
    assert our_order(ours, stages, microbatches, chunks) == expected


@pytest.mark.parametrize(("stages", "microbatches"), SIZES + SMALL)
def test_zb_h1_is_torchs_interleaved_zero_bubble_with_one_stage_a_rank(stages, microbatches):
    expected = torch_multi_order("InterleavedZeroBubble", stages, microbatches, 1)
    assert our_order("zb-h1", stages, microbatches) == expected


@pytest.mark.parametrize(("stages", "microbatches"), SIZES + SMALL + TWO_A_RANK)
def test_zbv_equals_torchs_below_2p_minus_1_micro_batches_too(stages, microbatches):
    assert our_order("zbv", stages, microbatches) == torch_multi_order(
        "ZBVZeroBubble", stages, microbatches, 2
    )


@pytest.mark.parametrize(("stages", "microbatches"), TWO_A_RANK)
def test_dualpipe_v_equals_torchs_with_the_same_overlapped_pairs(stages, microbatches):
    assert our_order("dualpipe-v", stages, microbatches) == torch_multi_order(
        "DualPipeV", stages, microbatches, 2
    )


@pytest.mark.parametrize("name", ["interleaved-1f1b", "zbv", "dualpipe-v", "dualpipe"])
def test_torch_reads_our_csv_in_its_compute_only_format(name, tmp_path):
    path = tmp_path / "order.csv"
    schedule(name, 4, 8).to_csv(path)
    rows = [line.split(",") for line in path.read_text().splitlines()]
    parsed = [[torch_schedules._Action.from_str(cell) for cell in row] for row in rows]
    assert [[str(action) for action in row] for row in parsed] == rows

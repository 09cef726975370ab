"""PyTorch's generators as a second opinion on every order."""

import pytest
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

from playbook.program.schedule import schedule

SIZES = [(2, 2), (4, 4), (4, 8), (4, 10), (8, 16), (5, 7)]


def torch_order(name, stages, microbatches, chunks=1):
    """Each rank's actions as texts, without torch's bookkeeping actions."""
    ops = get_schedule_ops(name, stages, microbatches, num_stages_per_rank=chunks)
    rows = [[str(action) for action in row if action is not None] for row in ops]
    return [[text for text in row if text.replace("F", "B").replace("B", "").isdigit()] for row in rows]


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
    assert [row.split(",") for row in schedule(ours, stages, microbatches).to_csv().splitlines()] == expected


@pytest.mark.parametrize(("stages", "microbatches"), SIZES)
def test_interleaved_orders_equal_torchs(stages, microbatches):
    expected = torch_order("Interleaved1F1B", stages, microbatches, 2)
    made = schedule("interleaved-1f1b", stages, microbatches, 2)
    assert [row.split(",") for row in made.to_csv().splitlines()] == expected


def test_torch_reads_our_csv_in_its_compute_only_format(tmp_path):
    path = tmp_path / "order.csv"
    made = schedule("interleaved-1f1b", 4, 8, 2)
    made.to_csv(path)
    rows = [line.split(",") for line in path.read_text().splitlines()]
    parsed = [[torch_schedules._Action.from_str(cell) for cell in row] for row in rows]
    assert [[str(action) for action in row] for row in parsed] == [list(map(str, row)) for row in made.orders]

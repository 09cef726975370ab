"""What the pipeline benchmarks run and print; the measuring itself is the benchmark."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_pipeline, pipeline_ranks
from playbook.program.schedule import schedule
from playbook.runtime.strategy_run import strategy_run
from playbook.schedules import plans


@pytest.mark.parametrize("name", plans())
def test_every_schedule_can_be_emulated_on_four_ranks(name):
    run = strategy_run("pp", pipeline_ranks.RANKS, **pipeline_ranks.levers(name, "hand", 0.04))
    assert run.scenario.microbatches == 8
    assert run.own["unit_s"] == 0.04


@pytest.mark.parametrize(("name", "by", "chunks"), gpu_pipeline.RUNS)
def test_every_run_on_gpus_has_an_order_for_two_ranks(name, by, chunks):
    levers = gpu_pipeline.levers(name, by, chunks, **gpu_pipeline.SHAPE)
    run = strategy_run("pp", gpu_pipeline.RANKS, model=gpu_pipeline.pb.Model(**gpu_pipeline.MODEL), **levers)
    assert run.scenario.workload.micro_batch * run.scenario.workload.sequence == 16_384
    assert schedule(name, 2, 8, chunks).stages == 2


def test_the_schedules_that_are_asked_for_are_tried_by_hand_on_gpus():
    asked = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zbv", "dualpipe", "dualpipe-v"}
    assert {name for name, by, _ in gpu_pipeline.RUNS if by == "hand"} == asked


def test_a_part_that_fails_says_so_and_gives_its_pool_back():
    class Pool:
        closed = False

        def close(self):
            self.closed = True

    def fail(_pool):
        raise TimeoutError("the job still runs after 40 s")

    pool = Pool()
    pools = [pool]
    told = gpu_pipeline.with_a_pool(pools, fail)
    assert told["failed"] == "TimeoutError: the job still runs after 40 s"
    assert pool.closed
    assert pools == []
    head = {"schedule": "zbv", "by": "hand", "part": "timed"}
    assert gpu_pipeline.line({**head, **told}).endswith("TimeoutError: the job still runs after 40 s")


def test_medians_are_told_by_kind_and_stage():
    rows = [
        {"op": f"m{m}/F/stage1", "kind": "forward", "duration_s": duration}
        for m, duration in enumerate((1.0, 9.0, 2.0))
    ]
    rows.append({"op": "m0/F/stage1", "kind": "wait", "duration_s": 5.0})
    assert gpu_pipeline.medians(rows) == {"forward": {"stage1": 2.0}}


def test_lines_name_the_error_of_the_step_and_of_each_kind():
    row = {"schedule": "zbv", "by": "hand", "simulated_s": 1.02, "emulated_s": 1.03, "error": 0.0098}
    text = pipeline_ranks.line({**row, "errors_by_kind": {"forward": 0.002}})
    assert text.split() == ["zbv", "hand", "1.020", "s", "1.030", "s", "+0.98%", "forward", "0.20%"]
    head = {"schedule": "zbv", "by": "hand", "part": "timed", "seconds": 3.0}
    timed = {"predicted_makespan_s": 0.4, "makespan_s": 0.41, "error": 0.025, "errors": {"forward": 0.01}}
    assert "0.4000 s  0.4100 s  +2.50%  forward 1.0%" in gpu_pipeline.line({**head, **timed})


FOUR = json.loads((Path(gpu_pipeline.__file__).parent / "results" / "gpu_pipeline_4.json").read_text())
TIMED = [row for row in FOUR["runs"] if "error" in row]


@pytest.mark.parametrize("row", TIMED, ids=lambda row: f"{row['schedule']} by {row['by']}")
def test_steps_on_four_gpus_are_simulated_to_five_per_cent_of_what_they_took(row):
    """Costs of single stages as timed alone on an H200; the makespan as taken on four over NCCL."""
    made = gpu_pipeline.pb.schedule(row["schedule"], stages=4, microbatches=8, chunks=row["chunks"])
    ways: dict[str, Any] = {"receive": "early", "queue": True}  # the library of torch 2.11
    if row["by"] == "hand":
        ways = {"receive": "deferred", "beside": row["beside_s"]}
    simulated = made.simulate(comm=row["latency_s"], **row["costs_s"], **ways)
    assert simulated.makespan == pytest.approx(row["makespan_s"], rel=0.05)
    assert max(row["errors"].values()) <= 0.08


def test_without_its_one_queue_the_librarys_interleaving_is_a_fifth_too_quick():
    (row,) = (row for row in TIMED if (row["schedule"], row["by"]) == ("interleaved-1f1b", "library"))
    made = gpu_pipeline.pb.schedule(row["schedule"], stages=4, microbatches=8, chunks=2)
    assert row["makespan_s"] > 1.2 * made.simulate(comm=row["latency_s"], **row["costs_s"]).makespan

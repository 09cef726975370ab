import pytest
import torch

from playbook.runtime.memory import Memory, fitted, tracked_memory
from playbook.runtime.part import world
from playbook.runtime.record import Record
from playbook.runtime.strategy_run import strategy_run
from playbook.runtime.strategy_steps import MeasuredStep
from playbook.runtime.torch_private import part as private
from tests.shapes import TINY

PARAMETERS = 17_400
"""Of the tiny model, counted in tests/shapes.py."""


def test_terms_that_are_too_small_are_filled_up_with_workspace():
    assert fitted({"parameters": 60, "temporary": 20}, 100) == {
        "parameters": 60,
        "temporary": 20,
        "workspace": 20,
    }
    assert fitted({"parameters": 60, "workspace": 5}, 70) == {"parameters": 60, "workspace": 10}


def test_terms_that_are_too_large_lose_temporaries_first():
    assert fitted({"parameters": 60, "temporary": 20}, 75) == {"parameters": 60, "temporary": 15}
    assert fitted({"parameters": 60, "temporary": 20}, 50) == {"parameters": 50, "temporary": 0}


def test_a_record_without_a_ledger_is_refused():
    with pytest.raises(ValueError, match="without a ledger"):
        tracked_memory(Record(rows=(), places=(), ledger=None))


def test_each_term_is_a_row():
    memory = Memory(
        peak_bytes=30,
        reserved_bytes=30,
        device_bytes=30,
        instant="B layers.1",
        op="m0/B/layers.1",
        terms={"parameters": 20, "logits": 10},
        source="tracked:gloo",
    )
    common = {"scenario": "tiny", "op": "m0/B/layers.1", "instant": "B layers.1", "formula": ""}
    assert memory.rows("tiny") == [
        {**common, "term": "parameters", "bytes": 20, "source": "tracked:gloo"},
        {**common, "term": "logits", "bytes": 10, "source": "tracked:gloo"},
    ]


def two_opinions(run):
    """Peak of a rank's step by the ledger and by torch's own tracker."""
    place = world("cpu", "dp")
    _, memory = MeasuredStep(run, place, "measured:gloo").count()
    step = MeasuredStep(run, place, "measured:gloo")
    module, optimizer = step.ready.part.module, step.ready.optimizer
    if run.strategy == "fsdp2":
        tracker = private("FSDPMemTracker")(module, optimizer)
    else:
        tracker = private("MemTracker")()
        tracker.track_external(module, optimizer)
    with tracker:
        step.take()
    snapshot = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    return memory.peak_bytes, snapshot["Total"], memory.terms


@pytest.mark.dist
@pytest.mark.timeout(120)
@pytest.mark.parametrize("levers", [{"strategy": "tp"}, {"strategy": "fsdp2", "by": "library"}])
def test_the_peak_is_about_that_of_torchs_own_tracker(pool, levers):
    sizes = {"model": TINY, "sequence": 32, "micro_batch": 2, "repeats": 1}
    run = strategy_run(ranks=2, **levers, **sizes)
    for peak, torchs_own, terms in pool.submit(two_opinions, run).result(60).values:
        # Two steps, and gloo's threads let go of a collective's buffers sooner or later in each. Under fake
        # tensors, where there are no threads, both are equal to the byte: tests/runtime/test_trace_memory.py.
        assert peak == pytest.approx(torchs_own, rel=0.15)
        assert sum(terms.values()) == peak


@pytest.mark.dist
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("recipe", "moments"), [("fp32", 8), ("sgd", 0)])
@pytest.mark.parametrize("by", ["hand", "library"])
def test_data_parallel_ranks_hold_the_whole_state(pool, by, recipe, moments):
    run = pool.submit(
        "ddp", by=by, model=TINY, parity="off", recipe=recipe, sequence=16, micro_batch=1, repeats=1
    ).result(60)
    memory = run.values[0]["memory"]
    terms = {row["term"]: row["bytes"] for row in memory["terms"]}
    assert terms["parameters"] == 4 * PARAMETERS
    # AdamW keeps a step counter of 4 bytes for each of the 21 parameters too
    assert terms.get("optimizer", 0) == (moments * PARAMETERS + 21 * 4 if moments else 0)
    # the buckets, which the library keeps and hand-written code makes; and two numbers of 4 bytes beside them
    assert terms["communication_buffers"] == pytest.approx(4 * PARAMETERS, abs=16)
    assert terms.get("gradients", 0) <= 4 * PARAMETERS
    assert sum(terms.values()) == memory["peak_bytes"] == run.memory[run.memory["rank"] == 0]["bytes"].sum()
    assert memory["source"] == "tracked:gloo"
    assert memory["instant"].startswith("B")


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_recomputation_lowers_the_activations(pool):
    sizes = {"model": TINY, "parity": "off", "sequence": 64, "micro_batch": 4, "repeats": 1, "by": "library"}
    kept = pool.submit("ddp", **sizes).result(60).values[0]["memory"]
    again = pool.submit("ddp", recompute="full", **sizes).result(60).values[0]["memory"]
    assert again["peak_bytes"] < 0.8 * kept["peak_bytes"]

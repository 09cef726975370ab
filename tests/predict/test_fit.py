import time
from dataclasses import replace

import pytest

import playbook as pb
from playbook.predict.fit_training import tried, with_layers
from playbook.units import gb

LLAMA = pb.model("llama-3.1-70b")
FSDP = pb.Scenario(
    LLAMA, pb.Workload(recompute="full", recipe="fsdp2-mixed"), pb.Layout(dp=64, zero=3), framework="torch"
)
MESH = pb.Scenario(LLAMA, pb.Workload(recompute="full"), pb.Layout(dp=4, tp=8, pp=4, zero=1))


def with_value(s, vary, value):
    if vary == "layers":
        return replace(s, model=replace(s.model, layers=value))
    if vary == "gpus":
        nodes = replace(s.cluster, nodes=-(-value // 8))
        return replace(s, layout=replace(s.layout, dp=value), cluster=nodes)
    return replace(s, workload=replace(s.workload, **{vary: value}))


@pytest.mark.parametrize("s", [FSDP, MESH], ids=["fsdp", "mesh"])
@pytest.mark.parametrize(("vary", "unit"), [("sequence", 1), ("micro_batch", 1), ("layers", None)])
def test_the_value_fits_and_the_next_does_not(s, vary, unit):
    found, unit = pb.fit(s, vary=vary), unit or s.layout.stages
    assert found.value is not None
    at, over = (pb.training_memory(with_value(s, vary, v)) for v in (found.value, found.value + unit))
    assert at.fits
    assert not over.fits
    assert found.best is not None
    assert found.best.device_bytes == at.device_bytes
    assert found.best.peak_bytes == at.peak_bytes
    assert found.limit_bytes == s.cluster.gpu.memory_bytes


def test_the_fewest_gpus_hold_it_and_one_less_does_not():
    found = pb.fit(FSDP, vary="gpus")
    assert found.value is not None
    assert pb.training_memory(with_value(FSDP, "gpus", found.value)).fits
    assert not pb.training_memory(with_value(FSDP, "gpus", found.value - 1)).fits


def test_seventy_billion_parameters_take_less_than_a_second():
    pb.fit(FSDP)
    began = time.perf_counter()
    pb.fit(FSDP)
    pb.fit(MESH)
    assert time.perf_counter() - began < 4  # one second each on a quiet machine


def test_sequences_are_those_that_ranks_can_cut():
    s = replace(MESH, layout=replace(MESH.layout, sequence_parallel=True))
    found = pb.fit(s)
    assert found.value is not None
    assert found.value % 8 == 0


def test_learned_positions_end_the_sequences():
    found = pb.fit(pb.Scenario(pb.model("gpt2"), pb.Workload(sequence=128)))
    assert found.value == 1024
    assert found.note == "every number that was looked at fits"


def test_micro_batches_divide_a_global_batch():
    work = replace(FSDP.workload, global_batch=64 * 10)
    found = pb.fit(replace(FSDP, workload=work), vary="micro_batch")
    assert found.value in (1, 2, 5, 10)


def test_where_nothing_fits_it_says_what_would():
    found = pb.fit(pb.Scenario(LLAMA, pb.Workload(), pb.Layout(dp=8)))
    assert found.value is None
    assert found.best is None
    assert "the least needs" in found.note
    assert "what would fit: zero=3 with recompute=full on" in found.note
    assert "fits h100" in repr(found)


def test_a_smaller_mend_is_named_first():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(sequence=1), pb.Layout(dp=8))
    assert "zero=1" in pb.fit(s).note
    flat = pb.fit(s, vary="gpus")
    assert flat.value is None
    assert "zero=1" in flat.note


def test_the_least_is_the_smallest_need_and_not_the_last_that_was_looked_at():
    """More replicas that share nothing only add buckets of gradients; wider engines hold less each."""
    whole = pb.fit(pb.Scenario(pb.model("llama-3.1-405b")), vary="gpus")
    needs = [one.device_bytes for one in whole.tried]
    assert needs == sorted(needs)
    assert needs[0] < needs[-1]
    assert f"the least needs {gb(needs[0])}" in whole.note
    load = pb.Serving(concurrency=100_000)
    engines = pb.fit(pb.Scenario(pb.model("llama-3.1-405b")), vary="gpus", serving=load)
    assert f"the least needs {gb(min(one.device_bytes for one in engines.tried))}" in engines.note
    assert "use fewer sequences at once (vary='concurrency'" in engines.note


def test_an_engine_is_asked_for_concurrency_and_sequence():
    s, load = pb.Scenario(LLAMA, layout=pb.Layout(tp=8)), pb.Serving(prompt=32_000)
    for vary, field in (("concurrency", "concurrency"), ("sequence", "prompt")):
        found = pb.fit(s, vary=vary, serving=load)
        assert found.value is not None
        value = found.value - (load.output if vary == "sequence" else 0)
        at, over = (
            pb.inference_memory(LLAMA, replace(load, **{field: v}), s.layout, s.cluster)
            for v in (value, value + 1)
        )
        assert at.fits
        assert not over.fits


def test_concurrency_agrees_with_the_pool():
    s, load = pb.Scenario(LLAMA, layout=pb.Layout(tp=8)), pb.Serving()
    found = pb.fit(s, vary="concurrency", serving=load)
    engine = pb.inference_memory(LLAMA, load, s.layout, s.cluster)
    assert found.value == pytest.approx(engine.capacity_sequences, rel=0.03)  # sampled rows grow with it


def test_the_fewest_gpus_of_an_engine():
    found = pb.fit(pb.Scenario(LLAMA), vary="gpus", serving=pb.Serving(concurrency=1))
    assert found.value == 2  # 141 GB of weights, and 77 GB to take from each
    assert "as tp=2 x pp=1" in found.note
    smaller = pb.fit(pb.Scenario(LLAMA), vary="gpus", serving=pb.Serving(concurrency=1, weights="int4"))
    assert smaller.value == 1


def test_gpus_that_fill_no_node_are_told():
    found = pb.fit(pb.Scenario(LLAMA), vary="gpus", serving=pb.Serving(concurrency=1))
    assert "1 node of 8, 6 of the 8 GPUs idle" in found.note
    whole = pb.fit(replace(FSDP, workload=replace(FSDP.workload, global_batch=64)), vary="gpus")
    assert whole.value is not None
    assert whole.value % 8 == 0
    assert "idle" not in whole.note


def test_what_the_next_value_is_too_much_is_told():
    found = pb.fit(FSDP, vary="micro-batch")
    over = next(one for one in found.tried if not one.fits)
    mb = (over.device_bytes - found.limit_bytes) / 1e6
    assert found.note.endswith("too much")
    assert over.value == found.value + 1
    assert mb > 0


def test_an_engine_that_holds_no_sequence_says_so():
    found = pb.fit(pb.Scenario(LLAMA), vary="concurrency", serving=pb.Serving())
    assert found.value is None
    assert "vary='gpus' tells how many" in found.note


def test_windows_and_dense_layers_repeat_with_the_depth():
    gemma = with_layers(pb.model("gemma-3-27b-text"), 124)
    assert sum(window is None for window in gemma.windows) == 20
    assert with_layers(pb.model("gemma-3-27b-text"), 5).windows == (1024,) * 5


def test_the_table_lists_what_was_looked_at():
    table = pb.fit(FSDP).table
    assert list(table.columns) == ["sequence", "peak_bytes", "device_bytes", "fits"]
    assert table["sequence"].is_monotonic_increasing
    assert len(table) < 25


def test_the_short_way_to_memory_is_training_memorys():
    for s in (FSDP, MESH):
        found = pb.training_memory(s)
        short = tried(s, 0)
        assert (short.peak_bytes, short.device_bytes) == (found.peak_bytes, found.device_bytes)


def test_questions_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="vary='concurrency' asks an engine; give serving"):
        pb.fit(FSDP, vary="concurrency")
    with pytest.raises(ValueError, match="vary='micro_batch' is training's"):
        pb.fit(FSDP, vary="micro_batch", serving=pb.Serving())
    with pytest.raises(
        ValueError, match="vary='width' is not known; valid are sequence, micro_batch, layers"
    ):
        pb.fit(FSDP, vary="width")
    uneven = replace(MESH, layout=replace(MESH.layout, stage_layers=(21, 20, 20, 19)))
    with pytest.raises(ValueError, match="leave stage_layers out"):
        pb.fit(uneven, vary="layers")

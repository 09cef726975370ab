import pytest

import playbook as pb
from playbook.predict.timing import step_time


def time_of(model="llama-3.1-8b", framework="textbook", cluster=None, layout=None, **work):
    shape = pb.Layout(**(layout or {}))
    machines = pb.cluster(cluster) if cluster else None
    return step_time(pb.Scenario(pb.model(model), pb.Workload(**work), shape, machines, framework=framework))


def test_the_band_holds_the_likely_time():
    found = time_of(layout={"dp": 8})
    assert found.low < found.seconds < found.high


@pytest.mark.parametrize(
    ("model", "world", "cluster", "measured"),
    [("llama-3.1-8b", 8, "1x8-h200", 0.557), ("llama-3.1-70b", 64, "8x8-h200", 4.23)],
)
def test_compute_of_two_measured_steps_lies_within_a_fifth(model, world, cluster, measured):
    """Compute seconds of a step on one H200 as rank 0 of the world, full checkpointing, batch 1, 4096
    tokens."""
    found = time_of(
        model, "transformers", cluster, {"dp": world, "zero": 3}, recipe="fsdp2-mixed", recompute="full"
    )
    (compute,) = [row["seconds"] for row in found.terms if row["term"] == "compute"]
    assert compute == pytest.approx(measured, rel=0.2)


def test_exposed_times_add_up_to_the_step():
    for layout, batch in (({"dp": 8, "zero": 3}, None), ({"pp": 4, "dp": 2}, 16)):
        found = time_of(layout=layout, global_batch=batch)
        assert sum(row["exposed_seconds"] for row in found.terms) == pytest.approx(found.seconds, rel=1e-9)


def test_more_micro_batches_leave_less_of_the_step_idle():
    shares = []
    for batch in (4, 16, 64):
        found = time_of(layout={"pp": 4}, global_batch=batch)
        (idle,) = [row["seconds"] for row in found.terms if row["term"] == "idle"]
        shares.append(idle / found.seconds)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(3 / 7, abs=0.1)


def test_utilisation_counts_six_a_parameter_and_the_whole_score_matrix():
    found = time_of(layout={"dp": 8})
    model, tokens = pb.model("llama-3.1-8b"), 4096
    flops = tokens * (6 * (model.parameters - 128_256 * 4096) + 12 * 32 * 4096 * 32 * 128)
    peak = found.scenario.cluster.gpu.flops_of("bf16")
    assert found.mfu == pytest.approx(flops / found.seconds / peak)
    assert found.tokens_per_second_per_gpu == pytest.approx(tokens / found.seconds)


def test_contiguous_pieces_of_a_causal_sequence_take_as_long_as_the_last_rank():
    """Of the scores of two ranks the last has three quarters, of a zigzag cut half."""
    model, work = pb.model("llama-3.1-8b"), pb.Workload(sequence=65_536, recompute="full")
    even, uneven = (
        pb.step_time(pb.Scenario(model, work, pb.Layout(cp=2, cp_split=split)))
        for split in ("zigzag", "contiguous")
    )
    scores = 4 * 65_536**2 * model.heads * model.head_dim * model.layers * (1 + 1 + 2.5)
    more = scores * (3 / 4 - 1 / 2) / (0.75 * 989.4e12)
    assert uneven.seconds - even.seconds == pytest.approx(more, rel=0.01)

import pytest

import playbook as pb
from playbook.runtime.stage_times import measure_stage_times

LONG_ENOUGH = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def pool():
    with pb.Pool(ranks=1, backend="gloo") as one:
        yield one


@pytest.mark.dist
@LONG_ENOUGH
def test_one_rank_times_a_stage_at_every_size(pool):
    times = measure_stage_times(pool, "toy-15m", layers=1, sequence=16, micro_batches=(4, 1), repeats=2)
    assert times.sequences == (1, 4)
    assert times.split
    assert all(0 < value < 60 for value in (*times.forward_s, *times.backward_s, *times.backward_weight_s))
    assert times.source == "measured:gloo"
    assert times.about.startswith("1 x layer of toy-15m, 16 tokens, CPU with")
    assert pb.best_microbatches(times, 2, 4).best.micro_batch in (1, 2, 4)


@pytest.mark.dist
@LONG_ENOUGH
def test_a_rank_that_fails_is_named_with_the_size(pool):
    with pytest.raises(pb.RankFailed, match="timing a micro-batch of 1099511627776 sequences"):
        measure_stage_times(pool, "toy-15m", layers=1, sequence=16, micro_batches=(2**40,), repeats=1)


@pytest.mark.dist
@LONG_ENOUGH
def test_what_takes_too_long_is_given_up_and_says_what_would_help(pool):
    with pytest.raises(TimeoutError, match="more than timeout_s=0.001; give fewer or smaller sizes"):
        measure_stage_times(pool, "toy-15m", layers=2, sequence=64, timeout_s=0.001)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"layers": 0}, "layers=0 must be at least 1"),
        ({"micro_batches": ()}, "micro_batches is empty"),
        ({"micro_batches": (0,)}, "micro_batches=0 must be at least 1"),
        ({"timeout_s": 0}, "timeout_s=0 must be above 0"),
        ({"model": "gpt2"}, "the reference transformer computes RMS norm"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_rank_starts(given, text):
    plain = {"model": "toy-15m", "layers": 1, "sequence": 16}
    with pytest.raises(ValueError, match=text):
        measure_stage_times(None, **{**plain, **given})

"""The replay of a small published layout against what nanotron's code says."""

import math

import pytest

from benchmarks.caching_allocator import MIB
from benchmarks.ultrascale import SEQUENCE, Run, models
from benchmarks.ultrascale_replay import Replay, bucket_bytes, reserved_bytes


def run(tp, zero=0):
    return Run(
        row=0,
        model="1B",
        gpus=2 * tp,
        dp=2,
        tp=tp,
        pp=1,
        mbs=1,
        grad_acc=128,
        zero=zero,
        status="ok",
        reserved_gib=None,
        tokens_per_s_gpu=None,
    )


def started(run):
    replay = Replay(run, 0, 0, math.inf)
    replay.start()
    return replay


def test_gather_buffers_hold_the_whole_stream_and_come_with_their_first_use():
    replay = started(run(8))
    stream = 2 * SEQUENCE * models()["1B"].hidden
    assert replay.buffers == {"F": stream, "B": stream}
    replay.step()
    assert replay.buffers == {}


def test_without_tensor_parallelism_nothing_is_gathered():
    assert started(run(1)).buffers == {}


def test_with_zero_1_there_is_no_ddp_and_so_no_bucket():
    without, one = started(run(8)), started(run(8, zero=1))
    halved = 4 * sum(one.weights) / 2
    buckets = without.allocator.reserved - one.allocator.reserved - halved
    assert buckets == pytest.approx(sum(bucket_bytes(without.weights)), abs=64 * MIB)
    assert sum(bucket_bytes(without.weights)) == 2 * sum(without.weights)


def test_updated_weights_are_gathered_in_pieces_and_once_more_as_a_whole():
    replay = started(run(8, zero=1))
    before = replay.allocator.reserved
    replay.update(first=False)
    gathered = 2 * sum(replay.weights) * (1 + 1 + 1 / 2)
    assert replay.allocator.reserved - before == pytest.approx(gathered, abs=64 * MIB)


def test_on_a_card_without_room_what_is_empty_is_given_back():
    free = reserved_bytes(run(8))
    assert reserved_bytes(run(8), limit=0.95 * free) < free


def test_a_host_that_is_ahead_holds_more():
    assert reserved_bytes(run(8), queue=26) > reserved_bytes(run(8))


def test_zero_1_saves_its_share_of_fp32_weights_and_moments_and_at_most_the_buckets():
    model = models()["1B"]
    saved = reserved_bytes(run(8)) - reserved_bytes(run(8, zero=1))
    numel = model.vocabulary * model.hidden + model.layers * (4 * model.hidden + 3 * model.ffn) * model.hidden
    share = 12 * (1 - 1 / 2) * numel / 8
    assert share - 64 * MIB < saved < share + 2 * numel / 8 + 64 * MIB

"""The replay of a small published layout against what nanotron's code says."""

import pytest

from benchmarks.caching_allocator import MIB
from benchmarks.ultrascale import SEQUENCE, Run, models
from benchmarks.ultrascale_replay import Replay, reserved_bytes


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


def test_gather_buffers_hold_the_whole_stream_and_come_with_their_first_use():
    replay = Replay(run(8), 0, 0)
    replay.start()
    stream = 2 * SEQUENCE * models()["1B"].hidden
    assert replay.buffers == {"F": stream, "B": stream}
    replay.step()
    assert replay.buffers == {}


def test_without_tensor_parallelism_nothing_is_gathered():
    replay = Replay(run(1), 0, 0)
    replay.start()
    assert replay.buffers == {}


def test_a_host_that_is_ahead_holds_more():
    assert reserved_bytes(run(8), queue=26) > reserved_bytes(run(8))


def test_zero_1_saves_its_share_of_fp32_weights_and_moments():
    model = models()["1B"]
    saved = reserved_bytes(run(8)) - reserved_bytes(run(8, zero=1))
    numel = model.vocabulary * model.hidden + model.layers * (4 * model.hidden + 3 * model.ffn) * model.hidden
    assert saved == pytest.approx(12 * (1 - 1 / 2) * numel / 8, abs=64 * MIB)

"""A pipeline's step in seconds and bytes, for every schedule."""

from dataclasses import replace

import numpy as np
import pytest

import playbook as pb
from playbook.predict.pipeline import pipeline_timeline
from playbook.predict.timing import step_time
from playbook.schedules.packed import B, F, I, W
from playbook.spec.layout import SCHEDULES, V_SCHEDULES
from tests.shapes import SMALL, scenario_of

DEEP = replace(SMALL, layers=8)
SEVERAL_CHUNKS = (*V_SCHEDULES, "interleaved-1f1b", "looped-bfs", "interleaved-zero-bubble")
STREAM = 2 * 32 * 64
LAYER = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64  # 30 848
TABLE, LAST_NORM = 128 * 64, 64


def pipelined(schedule, microbatches=8, framework="textbook", **fields):
    chunks = 2 if schedule in SEVERAL_CHUNKS else 1
    fields = {"pp": 4, "chunks": chunks, "schedule": schedule, **fields}
    model = fields.pop("model", DEEP)
    return scenario_of(framework, model, global_batch=microbatches * fields.get("dp", 1), **fields)


@pytest.mark.parametrize("schedule", SCHEDULES)
class TestEverySchedule:
    def test_memory_is_that_of_the_full_walk(self, schedule):
        s = pipelined(schedule)
        found = pipeline_timeline(s)
        walks = [pb.program(s, rank).memory() for rank in range(4)]
        assert found.peak_bytes == tuple(walk.peak_bytes for walk in walks)

    def test_the_curve_begins_and_ends_with_the_state_and_peaks_at_the_peak(self, schedule):
        s = pipelined(schedule)
        found = pipeline_timeline(s)
        for rank in range(4):
            times, held = found.curve(rank)
            state = sum(pb.program(s, rank).memory().state.values())
            assert (held[0], held[-1], held.max()) == (state, state, found.peak_bytes[rank])
            assert (np.diff(times) >= -1e-15).all()
            assert times[-1] == pytest.approx(found.seconds)

    def test_time_is_that_of_the_step_and_its_terms_add_up(self, schedule):
        s = pipelined(schedule)
        step = step_time(s)
        assert step.seconds == pytest.approx(pipeline_timeline(s).seconds)
        assert sum(row["exposed_seconds"] for row in step.terms) == pytest.approx(step.seconds, rel=1e-9)
        assert all(row["exposed_seconds"] >= -1e-12 for row in step.terms)

    def test_traffic_passes_each_border_between_ranks_once_each_way(self, schedule):
        s = pipelined(schedule)
        borders = s.layout.stages - 1 - (schedule in V_SCHEDULES)  # a V turns on one rank
        sent = sum(pb.traffic(s, rank).select(collective="send").count for rank in range(4))
        assert sent == 2 * borders * 8
        assert int(pipeline_timeline(s).message_bytes.sum()) == sent * STREAM


def test_a_stage_takes_the_time_of_its_rows():
    s = pipelined("zb-h1")
    rates = pb.program(s).rates
    times = pipeline_timeline(s).stages[1]
    # Two layers in the middle: W is seven products each, no time for what moves no bytes here.
    products = 2 * 32 * 64 * (64 + 32 + 32 + 64 + 96 + 96 + 96)
    assert times.backward_weight == pytest.approx(2 * products / rates.flops_per_s)
    assert times.backward_input > times.backward_weight  # attention is there twice and a half


def test_a_backward_takes_as_long_as_its_parts():
    whole, parts = (pipeline_timeline(pipelined(name)).stages for name in ("1f1b", "zb-h1"))
    for one, two in zip(whole, parts, strict=True):
        assert two.backward == pytest.approx(two.backward_input + two.backward_weight)
        assert one.backward == pytest.approx(two.backward, rel=1e-6)
        assert one.forward == pytest.approx(two.forward)


def test_costs_on_the_clock_are_those_of_the_stages():
    found = pipeline_timeline(pipelined("dualpipe-v", microbatches=16))
    timed = found.timed
    alone = ~timed.overlapped & ~np.append(timed.overlapped[1:], False)
    for code, field in ((F, "forward"), (B, "backward"), (I, "backward_input"), (W, "backward_weight")):
        mine = np.flatnonzero((timed.kind == code) & alone)
        costs = [getattr(found.stages[stage], field) for stage in timed.stage[mine]]
        assert timed.duration[mine].tolist() == pytest.approx(costs)


def test_torchs_first_stage_has_nothing_to_do_in_i():
    found = pipeline_timeline(pipelined("zb-h1", framework="torch", recipe="fp32"))
    assert found.stages[0].backward_input == 0
    assert found.stages[0].backward_weight > found.stages[1].backward_weight


def test_a_message_is_the_ranks_share_under_sequence_parallelism():
    found = pipeline_timeline(pipelined("1f1b", tp=2, sequence_parallel=True))
    assert set(found.message_bytes.tolist()) == {0, STREAM // 2}


def test_the_gpus_memory_is_what_its_driver_reports():
    s = pipelined("1f1b")
    assert pipeline_timeline(s).capacity_bytes == s.cluster.gpu.memory_bytes


def test_layers_may_be_shared_unevenly():
    s = pipelined("zbv", stage_layers=(1, 1, 1, 2, 1, 1, 1, 2), model=replace(SMALL, layers=10))
    found = pipeline_timeline(s)
    assert found.stages[3].forward > 1.5 * found.stages[2].forward
    assert found.peak_bytes == tuple(pb.program(s, rank).memory().peak_bytes for rank in range(4))
    names = {op.split("/")[2].split(".")[1] for op in pb.program(s, 3).ids() if "/layers." in op}
    assert names == {"3", "4", "5"}


class TestLevelsByHand:
    """32 tokens, one layer a chunk; each micro-batch's bytes after F and after I, by hand."""

    SAVED = 32 * (4 * 2 * 64 + 2 * 2 * 64 + 2 * 2 * 32 + 4 * 4 + 3 * 2 * 96)
    WAITING = 32 * ((2 * 64 + 2 * 64 + 2 * 64 + 2 * 96) + (2 * 64 + 4 * 32 + 2 * 64 + 4 * 96 + 2 * 64))

    def levels(self, s, rank):
        """Bytes before each action of a rank in the middle, over its state."""
        found, level, levels = pipeline_timeline(s), 0, []
        for action in found.order.order(rank):
            levels.append(level)
            level += {
                "F": self.SAVED,
                "B": -self.SAVED,
                "I": self.WAITING - self.SAVED,
                "W": -self.WAITING,
            }[action.kind]
        assert level == 0
        return levels

    @pytest.mark.parametrize(
        ("schedule", "layers"), [("1f1b", 4), ("zb-h1", 4), ("zb-h2", 4), ("zbv", 8), ("v-min", 8)]
    )
    def test_every_level_of_a_rank_in_the_middle(self, schedule, layers):
        s = pipelined(schedule, model=replace(SMALL, layers=layers))
        for rank in (1, 2):
            held = pipeline_timeline(s).memory[rank].before
            over = held - held[0]
            assert over[:-1].tolist() == self.levels(s, rank)


def activations(schedule, microbatches=16):
    """Each rank's peak over its state."""
    s = pipelined(schedule, microbatches)
    states = [sum(pb.program(s, rank).memory().state.values()) for rank in range(4)]
    peaks = pipeline_timeline(s).peak_bytes
    return [peak - state for peak, state in zip(peaks, states, strict=True)]


def test_zb_h1_holds_about_what_the_first_rank_of_one_f_one_b_does_on_every_rank():
    first = activations("1f1b")[0]
    *others, last = activations("zb-h1")
    assert others == pytest.approx([first] * 3, rel=0.05)
    assert last == pytest.approx(first, rel=0.2)  # with the logits of the loss


@pytest.mark.parametrize("schedule", ["zbv", "v-half"])
def test_v_schedules_are_level_over_the_ranks_that_hold_no_end(schedule):
    held = activations(schedule)[1:]
    assert max(held) < 1.02 * min(held)


def test_v_half_and_v_min_hold_less_than_zbv_in_this_order():
    full, half, least = (activations(name)[1] for name in ("zbv", "v-half", "v-min"))
    assert half < 0.8 * full
    assert least < half


class TestCopies:
    """DualPipe on four ranks of two layers a stage."""

    def test_a_rank_holds_two_stages_of_the_model(self):
        s = pipelined("dualpipe")
        state = [pb.program(s, rank).memory().state["parameters"] for rank in range(4)]
        ends, middle = 2 * (4 * LAYER + 2 * TABLE + LAST_NORM), 2 * 4 * LAYER
        assert state == [ends, middle, middle, ends]

    def test_layers_are_those_of_the_model(self):
        ids = pb.program(pipelined("dualpipe"), 1).ids()
        assert {op.split("/")[2].split(".")[1] for op in ids if "/layers." in op} == {"2", "3", "4", "5"}

    def test_both_directions_pass_a_rank(self):
        ids = pb.program(pipelined("dualpipe"), 0).ids()
        assert "m0/F/stage0/send@pp#0" in ids
        assert "m4/F/stage7/receive@pp#0" in ids  # the second half of the micro-batches comes up

    def test_gradients_are_summed_with_the_copy_after_the_last_action_and_before_the_optimizer(self):
        s = pipelined("dualpipe")
        found = pb.traffic(s, 0).select(collective="all_reduce")
        assert found.table["op"].tolist() == ["m-1/O/stage0/all_reduce@pp#0", "m-1/O/stage7/all_reduce@pp#0"]
        assert found.payload.tolist() == [2 * (2 * LAYER + TABLE), 2 * (2 * LAYER + TABLE + LAST_NORM)]
        assert found.wire_bytes == found.payload_bytes  # a ring of two
        ids = pb.program(s, 0).ids()
        assert ids.index("m-1/O//optimizer#0") == ids.index("m-1/O/stage7/all_reduce@pp#0") + 1
        assert ids.index("m-1/O/stage0/all_reduce@pp#0") > max(
            row for row, op in enumerate(ids) if not op.startswith("m-1")
        )

    def test_shared_gradients_are_summed_shard_by_shard(self):
        s = pipelined("dualpipe", dp=2, zero=2)
        found = pb.traffic(s, s.layout.rank(pp=1)).select(axis="pp", collective="all_reduce")
        assert found.payload.tolist() == [2 * 2 * LAYER // 2] * 2

    def test_the_rank_in_the_middle_of_an_odd_pipeline_holds_both_copies_and_sends_nothing(self):
        s = pipelined("dualpipe", pp=3, stage_layers=(3, 2, 3), microbatches=12)
        counts = [pb.traffic(s, rank).select(collective="all_reduce").count for rank in range(3)]
        assert counts == [2, 0, 2]
        assert pb.program(s, 1).memory().state["parameters"] == 2 * 2 * 2 * LAYER

    def test_the_sum_takes_its_time_after_the_last_action(self):
        one, two = (pipeline_timeline(pipelined(name)) for name in ("1f1b", "dualpipe"))
        link = pb.program(pipelined("dualpipe")).rates.links["pp"]
        summed = 2 * (4 * LAYER + 2 * TABLE + LAST_NORM) / link.bandwidth_bytes_per_s + 4 * link.latency_s
        assert two.after_s > summed
        assert two.after_s > one.after_s

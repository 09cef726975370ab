from dataclasses import replace

import numpy as np
import pytest

import playbook as pb
from playbook.program.rates import Rates
from playbook.program.timeline import ring_seconds, time_program
from playbook.spec import Link, Moe
from playbook.tables import TIMELINE

LINK = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e9)
RATES = Rates(flops_per_s=1e12, memory_bytes_per_s=1e12, links={"dp": LINK, "tp": LINK, "pp": LINK})


def test_a_ring_of_four_takes_latency_and_three_quarters_of_the_bytes():
    assert ring_seconds("all_gather", 4000, 4, LINK) == pytest.approx(3e-6 + 3000 / 1e9)
    assert ring_seconds("all_reduce", 4000, 4, LINK) == pytest.approx(6e-6 + 6000 / 1e9)
    assert ring_seconds("send", 4000, 4, LINK) == pytest.approx(1e-6 + 4000 / 1e9)
    assert ring_seconds("receive", 4000, 4, LINK) == ring_seconds("all_reduce", 4000, 1, LINK) == 0


def of(scenario, **fields):
    program = pb.program(scenario("torch", recipe="fp32", **fields))
    return time_program(program, RATES), program.ids()


def test_without_communication_rows_follow_each_other(scenario):
    found, _ = of(scenario)
    ends = found.start_s + found.duration_s
    assert found.seconds == pytest.approx(found.duration_s.sum(), rel=1e-9)
    assert np.allclose(found.start_s[1:], ends[:-1], rtol=1e-9)
    assert found.exposed_s == pytest.approx(0, abs=1e-12)


def test_a_row_takes_its_flops_over_the_rate_or_its_bytes_over_the_bandwidth(scenario):
    found, ids = of(scenario)
    row = ids.index("m0/F/layers.0.mlp.up_proj/mm#0")
    # 32 tokens, 64 to 96 features: 393 216 operations; 32·96·4 bytes of result, moved three times.
    assert found.duration_s[row] == pytest.approx(max(2 * 32 * 64 * 96 / 1e12, 3 * 32 * 96 * 4 / 1e12))


def test_tensor_parallel_sums_stand_in_the_way_of_compute(scenario):
    found, ids = of(scenario, tp=2)
    alone, _ = of(scenario)
    place = next(row for row, text in enumerate(ids) if "layers.0/all_reduce@tp" in text)
    end = found.start_s[place] + found.duration_s[place]
    assert found.start_s[place + 1] == pytest.approx(end)
    assert found.seconds > alone.seconds / 2


def test_a_layer_waits_for_its_gather_and_the_next_gather_runs_beside_it(scenario):
    found, ids = of(scenario, dp=2, zero=3)
    gather = ids.index("m0/F/layers.1/all_gather@dp#0")
    compute = ids.index("m0/F/layers.1/split_with_sizes_copy#0")
    ended = found.start_s[gather] + found.duration_s[gather]
    assert found.start_s[compute] >= ended - 1e-12
    before = ids.index("m0/F/layers.0/split_with_sizes_copy#0")
    assert found.start_s[gather] >= found.start_s[before]
    assert found.start_s[gather] < found.start_s[compute]


def test_the_optimizer_waits_for_every_reduction(scenario):
    found, ids = of(scenario, dp=2, zero=3)
    optimizer = ids.index("m-1/O//optimizer#0")
    reductions = [row for row, text in enumerate(ids) if "reduce_scatter" in text]
    assert (
        found.start_s[optimizer]
        >= max(found.start_s[row] + found.duration_s[row] for row in reductions) - 1e-12
    )


def test_hidden_communication_is_not_exposed(scenario):
    found = time_program(pb.program(scenario(dp=2)), RATES)
    talk = found.duration_s[found.communicates].sum()
    assert 0 < found.exposed_s < talk


def test_the_table_is_keyed_by_ids(scenario):
    found, ids = of(scenario, dp=2, zero=3)
    table = found.table
    assert tuple(table.columns) == TIMELINE
    assert set(table["op"]) <= set(ids)
    assert set(table["source"]) == {"simulated"}
    assert {"compute", "gather", "reduce"} == set(table["lane"])


def test_a_program_times_itself_at_its_clusters_rates(scenario):
    program = pb.program(scenario(dp=2))
    assert program.timeline().seconds > 0
    assert program.timeline(RATES).seconds != program.timeline().seconds


@pytest.mark.parametrize("bandwidth", [1e6, 1e12])
def test_passed_keys_travel_beside_the_core_and_the_row_behind_it_waits_for_the_last(scenario, bandwidth):
    slow = Link(latency_s=1e-9, bandwidth_bytes_per_s=bandwidth)
    rates = Rates(flops_per_s=1e9, memory_bytes_per_s=1e15, links={"cp": slow})
    program = pb.program(scenario("torch", recipe="bf16", cp=4))
    found, ids = time_program(program, rates), program.ids()
    end = found.start_s + found.duration_s
    core = ids.index("m0/F/layers.1.self_attn/sdpa#0")
    hops = [ids.index(f"m0/F/layers.1.self_attn/send_recv@cp#{k}") for k in range(3)]
    behind = found.start_s[core + 1]
    assert found.start_s[hops[0]] == pytest.approx(found.start_s[core])
    assert behind == pytest.approx(max(end[core], end[hops[-1]]))
    # A quarter of 32 · 32 scores of 4 heads of 16 features; three hops of 2 · 8 · 2 · 16 · 2 bytes.
    computing, talking = 4 * 32 * 32 * 64 / 4 / 1e9, 3 * (1e-9 + 2 * 8 * 2 * 16 * 2 / bandwidth)
    assert behind - found.start_s[core] == pytest.approx(max(computing, talking))


def test_the_layer_waits_for_its_experts_too(scenario):
    s = scenario("textbook", dp=4, zero=3)
    model = replace(s.model, moe=Moe(experts=4, active=2, ffn=4096))
    program = pb.program(replace(s, model=model, layout=replace(s.layout, ep=2)))
    slow = Rates(flops_per_s=1e15, memory_bytes_per_s=1e15, links={"dp": LINK, "ep": LINK})
    found, ids = time_program(program, slow), program.ids()
    gathered = ids.index("m0/F/layers.0.mlp.experts/all_gather@dp#0")
    first = ids.index("m0/F/layers.0.input_layernorm/norm#0")
    assert found.start_s[first] >= found.start_s[gathered] + found.duration_s[gathered]

import pytest

import playbook as pb
from playbook.predict.rates import rates_of


def test_products_reach_three_quarters_of_the_dense_peak():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(), pb.Layout(dp=8))
    rates = rates_of(s)
    assert rates.flops_per_s == pytest.approx(0.75 * s.cluster.gpu.flops_of("bf16"))
    assert rates.memory_bytes_per_s == pytest.approx(0.70 * s.cluster.gpu.memory_bytes_per_s)


def test_a_group_uses_the_slowest_link_that_it_spans():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(), pb.Layout(tp=8, dp=4), pb.cluster("4x8-h100"))
    rates = rates_of(s)
    assert (rates.links["tp"], rates.links["dp"]) == (s.cluster.intra, s.cluster.inter)

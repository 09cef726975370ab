import json
from importlib.resources import files

import pytest

import playbook as pb
from playbook.spec import Gpu, Link, cluster, gpu, presets, smallest_cluster
from playbook.spec.detect import preset_name


@pytest.mark.parametrize(
    ("name", "mib", "bf16", "bandwidth", "nvlink", "nic"),
    [
        ("h100", 81_559, 989.4e12, 3.35e12, 450e9, 50e9),
        ("h200", 143_771, 989.4e12, 4.8e12, 450e9, 50e9),
        ("a100", 81_920, 312e12, 2.039e12, 300e9, 25e9),
        ("a100-40", 40_960, 312e12, 1.555e12, 300e9, 25e9),
        ("b200", 183_359, 2250e12, 8e12, 900e9, 50e9),
    ],
)
def test_gpus_have_the_figures_of_their_driver_and_data_sheets(name, mib, bf16, bandwidth, nvlink, nic):
    found = cluster(f"2x8-{name}")
    assert found.gpu.memory_bytes == mib * 2**20
    assert found.gpu.flops_of("BF16") == bf16
    assert found.gpu.memory_bytes_per_s == bandwidth
    assert found.intra.bandwidth_bytes_per_s == nvlink
    assert found.inter.bandwidth_bytes_per_s == nic


def test_an_80_gb_h100_has_85_5_gb():
    assert round(gpu("H100").memory_bytes / 1e9, 1) == 85.5


@pytest.mark.parametrize("name", presets.names("gpus"))
def test_each_number_of_a_gpu_has_its_source_in_the_file(name):
    content = json.loads((files("playbook.spec.presets") / "gpus" / f"{name}.json").read_text())
    assert all(len(part["source"]) > 10 for part in content.values())


def test_patterns_give_nodes_of_gpus():
    found = cluster("64x8-H100")
    assert (found.nodes, found.gpus_per_node, found.gpus, found.name) == (64, 8, 512, "64x8-h100")


def test_presets_are_found_by_name():
    assert cluster("dgx-h200").gpu == gpu("h200")
    assert cluster("laptop").shared
    assert cluster("LAPTOP") == cluster("laptop")


def test_the_smallest_cluster_has_whole_nodes_of_eight():
    assert smallest_cluster(9).name == "2x8-h100"
    assert smallest_cluster(8, "h200").name == "1x8-h200"


def test_a_group_inside_a_node_uses_the_faster_link():
    found = cluster("2x8-h100")
    assert found.link(8) == found.intra
    assert found.link(9) == found.inter


def test_a_message_costs_its_latency_and_its_bytes():
    assert Link(latency_s=1e-6, bandwidth_bytes_per_s=1e9).seconds(1e6) == pytest.approx(0.001001)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("mars", ValueError, "cluster='mars' is not known; use dgx-h100.*NODESxGPUS-GPU.*a100"),
        ("2x8-h900", ValueError, "gpu='h900' is not known; valid are a100"),
        ("0x8-h100", ValueError, "nodes=0 must be at least 1"),
        ("2x-1-h100", ValueError, "gpus_per_node=-1 must be at least 1"),
        (8, TypeError, "must be a name such as"),
    ],
)
def test_bad_clusters_are_refused_with_what_would_work(name, error, text):
    with pytest.raises(error, match=text):
        cluster(name)


def test_bad_numbers_of_a_gpu_or_link_are_refused():
    with pytest.raises(ValueError, match="bandwidth_bytes_per_s=0 must be above 0"):
        Link(latency_s=0, bandwidth_bytes_per_s=0)
    with pytest.raises(ValueError, match="memory_bytes=0 must be at least 1"):
        Gpu(name="g", memory_bytes=0, flops={"bf16": 1.0}, memory_bytes_per_s=1.0)
    with pytest.raises(ValueError, match="dtype='fp4' is not known; valid are bf16"):
        gpu("h100").flops_of("fp4")


@pytest.mark.parametrize(
    ("product", "preset"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA B200", "b200"),
        ("Tesla T4", None),
    ],
)
def test_a_drivers_product_name_leads_to_the_preset(product, preset):
    assert preset_name(product) == preset


def test_a_machine_without_gpus_is_described_by_its_cores():
    found = pb.Cluster.detect()
    assert found.gpus_per_node >= 1
    assert found.gpu.memory_bytes > 2**28

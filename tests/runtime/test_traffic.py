import pytest
import torch
import torch.distributed as dist

from playbook.runtime.traffic import Call, TrafficCounter, traffic_rows, traffic_summary, wire_bytes


def call(collective, payload_bytes=1_000):
    return Call(id="", phase="F", axis="dp", collective=collective, payload_bytes=payload_bytes)


@pytest.mark.parametrize(
    ("collective", "two", "four"),
    [
        ("all_reduce", 1_000, 1_500),
        ("all_gather", 500, 750),
        ("reduce_scatter", 500, 750),
        ("all_to_all", 500, 750),
        ("send", 1_000, 1_000),
        ("receive", 0, 0),
    ],
)
def test_bytes_on_the_wire_follow_the_ring_model(collective, two, four):
    assert wire_bytes(call(collective), 2) == two
    assert wire_bytes(call(collective), 4) == four


def test_a_receive_sends_nothing():
    assert traffic_summary([call("send"), call("receive")], 2) == {
        "payload_bytes": 1_000,
        "wire_bytes": 1_000.0,
        "calls": {"send": 1},
    }


def test_every_call_is_a_row():
    (row,) = traffic_rows([call("all_reduce")], 4, step=2, source="measured:gloo")
    assert row == {
        "op": "",
        "step": 2,
        "phase": "F",
        "axis": "dp",
        "collective": "all_reduce",
        "count": 1,
        "payload_bytes": 1_000,
        "wire_bytes": 1_500.0,
        "source": "measured:gloo",
    }


def counted(work):
    counter = TrafficCounter("dp")
    with counter:
        work()
    work()
    return [(found.collective, found.payload_bytes) for found in counter.calls]


def collectives():
    """Every collective once, with 6 numbers of 4 bytes a rank."""
    n, x = dist.get_world_size(), torch.ones(6)
    out, wide = torch.empty(6 * n), torch.ones(6 * n)
    dist.all_reduce(x)
    dist.all_gather([torch.empty(6) for _ in range(n)], x)
    dist.all_gather_into_tensor(out, x)
    dist.reduce_scatter(torch.empty(6), list(wide.chunk(n)))
    dist.reduce_scatter_tensor(torch.empty(6), wide)
    dist.all_to_all_single(out, wide)
    dist.broadcast(x, 0)


def messages():
    if dist.get_rank() == 0:
        dist.isend(torch.ones(6), 1).wait()
    else:
        dist.irecv(torch.empty(6), 0).wait()


def count_collectives():
    return counted(collectives)


def count_messages():
    return counted(messages)


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_the_payload_is_the_input_or_the_gathered_output_and_the_counter_stops(pool):
    # 2 ranks: 6 x 4 = 24 bytes own, 48 together
    for found in pool.submit(count_collectives).result(60).values:
        assert found == [
            ("all_reduce", 24),
            ("all_gather", 48),
            ("all_gather", 48),
            ("reduce_scatter", 48),
            ("reduce_scatter", 48),
            ("all_to_all", 48),
            ("broadcast", 24),
        ]


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_messages_are_counted_on_both_sides(pool):
    sender, receiver = pool.submit(count_messages).result(60).values
    assert sender == [("send", 24)]
    assert receiver == [("receive", 24)]


def count_functional():
    from torch.distributed._functional_collectives import all_reduce
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    from playbook.runtime.torch_private import quiet_renamed_collectives

    quiet_renamed_collectives()
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh_dim_names=("dp",))

    def work():
        all_reduce(torch.ones(6), "sum", dist.group.WORLD).sum()
        distribute_tensor(torch.ones(6), mesh, [Shard(0)], src_data_rank=None).redistribute(
            mesh, [Replicate()]
        )

    return counted(work)


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_functional_collectives_and_distributed_tensors_are_seen_once(pool):
    for found in pool.submit(count_functional).result(60).values:
        assert found == [("all_reduce", 24), ("all_gather", 24)]

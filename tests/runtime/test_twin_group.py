import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from playbook.runtime.torch_private import quiet
from playbook.runtime.twin_values import tile
from playbook.runtime.twin_world import cluster_price, free, twin_world
from playbook.spec import cluster

CPU = torch.device("cpu")


@pytest.fixture
def places():
    """Rank 3 of 8: rank 1 of 4 along dp, rank 1 of 2 along tp."""
    with twin_world({"dp": 4, "tp": 2}, 3, CPU, free) as found:
        yield found


def test_a_rank_of_a_mesh_has_its_places(places):
    assert (places["dp"].rank, places["dp"].ranks) == (1, 4)
    assert (places["tp"].rank, places["tp"].ranks) == (1, 2)
    assert dist.get_rank() == 3
    assert dist.get_world_size() == 8
    assert places["dp"].mesh.mesh.tolist() == [1, 3, 5, 7]


def test_a_world_of_1024_needs_one_process():
    with twin_world({"dp": 1024}, 777, CPU, free) as found:
        assert (found["dp"].rank, found["dp"].ranks) == (777, 1024)


def test_a_second_world_follows_the_first_in_one_process():
    for ranks in (2, 5):
        with twin_world({"dp": ranks}, 1, CPU, free) as found:
            assert found["dp"].group.size() == ranks
    assert not dist.is_initialized()


def test_all_reduce_adds_equal_ranks_and_averages_to_the_same(places):
    group = places["dp"].group
    dist.all_reduce(total := torch.tensor([1.0, 2.0]), group=group)
    dist.all_reduce(mean := torch.tensor([1.0, 2.0]), op=dist.ReduceOp.AVG, group=group)
    dist.all_reduce(most := torch.tensor([3]), op=dist.ReduceOp.MAX, group=group)
    assert (total.tolist(), mean.tolist(), most.tolist()) == ([4.0, 8.0], [1.0, 2.0], [3])


def test_gathers_repeat_the_ranks_own_values(places):
    group, own = places["dp"].group, torch.tensor([1.0, 2.0])
    parts = [torch.empty(2) for _ in range(4)]
    with quiet():
        dist.all_gather_into_tensor(whole := torch.empty(8), own, group=group)
    dist.all_gather(parts, own, group=group)
    assert whole.tolist() == [1.0, 2.0] * 4
    assert [part.tolist() for part in parts] == [[1.0, 2.0]] * 4


def test_reduce_scatter_gives_this_ranks_part(places):
    group, given = places["dp"].group, torch.arange(8.0)
    with quiet():
        dist.reduce_scatter_tensor(total := torch.empty(2), given, group=group)
        dist.reduce_scatter_tensor(mean := torch.empty(2), given, op=dist.ReduceOp.AVG, group=group)
    dist.reduce_scatter(listed := torch.empty(2), list(given.chunk(4)), group=group)
    assert (total.tolist(), mean.tolist(), listed.tolist()) == ([8.0, 12.0], [2.0, 3.0], [8.0, 12.0])


def test_all_to_all_brings_what_this_rank_sends_itself(places):
    group, given = places["tp"].group, torch.tensor([1.0, 2.0, 3.0, 4.0])
    dist.all_to_all_single(even := torch.empty(4), given, group=group)
    dist.all_to_all_single(uneven := torch.empty(5), given, [2, 3], [1, 3], group=group)
    dist.all_to_all(parts := [torch.empty(2), torch.empty(2)], list(given.chunk(2)), group=group)
    assert even.tolist() == [3.0, 4.0, 3.0, 4.0]
    assert uneven.tolist() == [2.0, 3.0, 4.0, 2.0, 3.0]
    assert [part.tolist() for part in parts] == [[3.0, 4.0]] * 2


def test_a_message_that_arrives_holds_normal_values(places):
    room = torch.full((10_000,), float("nan"))
    work = dist.irecv(room, group=places["tp"].group, group_src=0)
    assert work is not None
    work.wait()
    assert abs(room.std().item() / 0.02 - 1) < 0.05


def test_broadcast_send_reduce_and_barrier_leave_values_alone(places):
    group, own = places["tp"].group, torch.tensor([5.0])
    dist.broadcast(own, group=group, group_src=0)
    work = dist.isend(own, group=group, group_dst=0)
    assert work is not None
    work.wait()
    dist.barrier(group=group)
    assert own.tolist() == [5.0]


def test_the_collectives_of_dtensor_work_too(places):
    group, own = places["dp"].group, torch.tensor([1.0, 2.0, 3.0, 4.0])
    gathered = functional.wait_tensor(functional.all_gather_tensor(own, 0, group))
    reduced = functional.wait_tensor(functional.reduce_scatter_tensor(own, "sum", 0, group))
    total = functional.wait_tensor(functional.all_reduce(own, "avg", group))
    assert gathered.tolist() == [1.0, 2.0, 3.0, 4.0] * 4
    assert (reduced.tolist(), total.tolist()) == ([8.0], [1.0, 2.0, 3.0, 4.0])


def test_work_has_a_future_with_the_tensor_which_ddp_asks_for(places):
    work = dist.all_reduce(own := torch.tensor([1.0]), group=places["dp"].group, async_op=True)
    assert work is not None
    assert work.get_future().wait()[0] is own


def test_values_move_no_version_that_autograd_checks(places):
    x = torch.ones(2, requires_grad=True)
    kept = x * 2
    loss = (kept * kept).sum()
    dist.all_reduce(kept.detach(), group=places["tp"].group)
    loss.backward()
    assert x.grad is not None


def test_tiling_leaves_no_place_empty():
    tile(room := torch.full((2, 4), float("nan")), torch.tensor([1.0, 2.0, 3.0]))
    assert room.tolist() == [[1.0, 2.0, 3.0, 1.0], [2.0, 3.0, 1.0, 2.0]]


def test_a_group_inside_a_node_is_priced_by_nvlink_and_one_across_by_the_network():
    price, size = cluster_price(cluster("2x8-h200")), 8_000_000
    # 450 GB/s and 2 µs inside: 2 · 7 messages, 2 · 7/8 of 8 MB; 50 GB/s and 5 µs between nodes.
    assert price("all_reduce", size, range(8)) == pytest.approx(14 * 2e-6 + 14e6 / 450e9)
    assert price("all_gather", size, (0, 8)) == pytest.approx(5e-6 + 4e6 / 50e9)
    assert price("receive", size, (7, 8)) == pytest.approx(5e-6 + 8e6 / 50e9)
    assert price("barrier", 0, range(16)) == 0.0

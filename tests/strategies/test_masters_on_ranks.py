"""The optimizer with FP32 masters on what strategies give it: shards, copies and unfinished gradients."""

import pytest

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

STRATEGIES = [("ddp", "library"), ("fsdp2", "library"), ("fsdp2", "hand"), ("tp", "library"), ("pp", "hand")]


def compare_on_rank():
    """Step distributed and plain parameters alike, and return what differs."""

    def on_rank():
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

        from playbook.models.master_adamw import MASTER, MasterAdamW
        from playbook.runtime.rank import here

        mesh, rank = init_device_mesh("cpu", (2,)), here().rank
        torch.manual_seed(0)
        gradient = torch.randint(-8, 8, (5, 3)).bfloat16()
        value = torch.randn(5, 3).bfloat16()
        half = gradient / 2
        # As FSDP2 leaves them (rows of their own), a split table under DTensor (all rows), a norm (sums).
        given = {
            "shard": (Shard(0), distribute_tensor(gradient, mesh, [Shard(0)])),
            "all rows": (Shard(0), distribute_tensor(gradient, mesh, [Replicate()])),
            "partial sum": (Replicate(), DTensor.from_local(half, mesh, [Partial()])),
        }
        plain = torch.nn.Parameter(value.clone())
        plain.grad = gradient
        wholly = MasterAdamW([plain], fused=True)
        wholly.step()
        found = {}
        for name, (placement, grad) in given.items():
            parameter = torch.nn.Parameter(distribute_tensor(value, mesh, [placement]))
            parameter.grad = grad
            optimizer = MasterAdamW([parameter], fused=True)
            optimizer.step()
            master = optimizer.state[parameter][MASTER]
            found[name] = (
                tuple(master.to_local().shape),
                torch.equal(master.full_tensor(), wholly.state[plain][MASTER]),
                torch.equal(parameter.detach().full_tensor(), plain.detach()),
            )
        return rank, found

    return on_rank


def test_distributed_parameters_are_stepped_as_whole_ones_are(two):
    values = two.submit(compare_on_rank()).result(60).values
    rows = {0: 3, 1: 2}
    for rank, found in values:
        assert found == {
            "shard": ((rows[rank], 3), True, True),
            "all rows": ((rows[rank], 3), True, True),
            "partial sum": ((5, 3), True, True),
        }


@pytest.mark.parametrize(("strategy", "by"), STRATEGIES)
def test_a_run_holds_masters_and_moments_of_what_a_rank_updates(two, tiny, strategy, by):
    levers = {"model": tiny, "sequence": 8, "micro_batch": 1, "repeats": 1, "parity": "off"}
    run = two.submit(strategy, by=by, recipe="bf16-fp32master", **levers).result(60)
    table = run.memory[run.memory["rank"] == 0].groupby("term")["bytes"].sum()
    # 17 400 elements in all. Under tensor parallelism the five norms stay whole, 120 elements; the first
    # stage of the pipeline has the token table and a layer.
    count = {"ddp": 17_400, "fsdp2": 8_700, "tp": 8_640 + 120, "pp": 3_168 + 5_520}[strategy]
    assert table["parameters"] == 2 * count
    assert table["master_weights"] == 4 * count
    assert table["optimizer"] == pytest.approx(8 * count, rel=0.005)  # and the number of the step of each

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from playbook.models.checkpointed import checkpoint
from playbook.runtime.record import block_of, operation_name, record_step
from playbook.runtime.torch_private import part
from tests.runtime.steps import step_of, transformer

NORM = ["pow#0", "mean#0", "add#0", "rsqrt#0", "mul#0", "mul#1"]
ROTATED = ["mul#0", "neg#0", "cat#0", "mul#1", "add#0", "mul#2", "neg#1", "cat#1", "mul#3", "add#1"]
LAYER_FORWARD = [
    *(f"layers.1.input_layernorm/{op}" for op in NORM),
    *(f"layers.1.self_attn.{x}_proj/mm#0" for x in "qkv"),
    *(f"layers.1.self_attn/{op}" for op in ROTATED),
    "layers.1.self_attn/sdpa#0",
    "layers.1.self_attn.o_proj/mm#0",
    "layers.1/add#0",
    *(f"layers.1.post_attention_layernorm/{op}" for op in NORM),
    "layers.1.mlp.gate_proj/mm#0",
    "layers.1.mlp/silu#0",
    "layers.1.mlp.up_proj/mm#0",
    "layers.1.mlp/mul#0",
    "layers.1.mlp.down_proj/mm#0",
    "layers.1/add#1",
]


def recorded(module, **how):
    step = step_of(module, torch.optim.AdamW(module.parameters()), **how)
    step()
    return record_step(step, module, "dp")


def under(ids, prefix):
    return [text.removeprefix(prefix) for text in ids if text.startswith(prefix) and "layers.1" in text]


def test_a_layer_s_forward_is_named_operation_by_operation():
    assert under(recorded(transformer()).ids, "m0/F/") == LAYER_FORWARD


def test_a_backward_operation_belongs_to_the_module_whose_forward_made_its_node():
    ids = under(recorded(transformer()).ids, "m0/B/")
    assert ids[:4] == [
        "layers.1.mlp.down_proj/mm#0",
        "layers.1.mlp.down_proj/mm#1",
        "layers.1.mlp/mul#0",
        "layers.1.mlp/mul#1",
    ]
    assert sum("/mm#" in text for text in ids) == 14
    assert ids[-1] == "layers.1.input_layernorm/add#1"


def test_recompute_is_a_phase_of_its_own_and_stops_before_the_last_product():
    module = transformer()
    for name, layer in list(module.layers.items()):
        module.layers[name] = checkpoint_wrapper(layer)
    ids = recorded(module).ids
    last = LAYER_FORWARD.index("layers.1.mlp.down_proj/mm#0")
    assert under(ids, "m0/R/") == LAYER_FORWARD[:last]
    assert under(ids, "m0/F/") == LAYER_FORWARD


def test_an_attention_core_that_runs_again_is_a_row_of_attention_and_of_that_phase():
    module, plain = transformer(), recorded(transformer()).ids
    checkpoint([module], "selective")
    ids = recorded(module).ids
    assert under(ids, "m0/R/") == ["layers.1.self_attn/sdpa#0"]
    assert [text for text in ids if "/R/" not in text] == list(plain)


def test_micro_batches_are_numbered_and_the_optimizer_is_one_id():
    rows = recorded(transformer(), microbatches=3).rows
    assert {row.id.microbatch for row in rows} == {-1, 0, 1, 2}
    assert [str(row.id) for row in rows if row.id.phase == "O"] == ["m-1/O//optimizer#0"]


def test_a_hand_written_update_counts_as_the_optimizer():
    module = transformer()

    def step():
        step_of(module)()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(0.9)

    step()
    assert record_step(step, module, "dp").ids[-1] == "m-1/O//optimizer#0"


def test_fake_tensors_give_the_same_rows_as_real_ones():
    real = recorded(transformer(), microbatches=2)
    with part("FakeTensorMode")():
        fake = recorded(transformer(), microbatches=2)
    assert fake.ids == real.ids


def test_attention_kernels_have_one_name():
    assert operation_name("aten::_scaled_dot_product_flash_attention") == "sdpa"
    assert operation_name("aten::_scaled_dot_product_efficient_attention_backward") == "sdpa_backward"
    assert operation_name("aten::_softmax") == "_softmax"


def test_a_collective_belongs_to_its_block():
    assert block_of("layers.3.self_attn.o_proj") == "layers.3"
    assert block_of("lm_head") == "lm_head"


def test_a_mesh_without_names_is_refused():
    mesh = type("Mesh", (dist.DeviceMesh,), {"__init__": lambda self: None, "mesh_dim_names": None})()
    with pytest.raises(ValueError, match="mesh_dim_names"):
        record_step(lambda: None, transformer(), mesh)


# On two ranks: one start of the processes serves three strategies.


def on_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    found = {"ddp": ddp(), "fsdp2": fsdp2(), "tp": tensor_parallel()}
    Path(f"{folder}/{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def seen(module, axes, optimizer=None):
    step = step_of(module, optimizer)
    step()
    step()
    record = record_step(step, module, axes)
    return [(str(row.id), row.payload_bytes) for row in record.collectives]


def ddp():
    from torch.nn.parallel import DistributedDataParallel

    return seen(DistributedDataParallel(transformer(), bucket_cap_mb=0.02), "dp")


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    module = transformer()
    for layer in module.layers.values():
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh, reshard_after_forward=True)
    return seen(module, mesh)


def tensor_parallel():
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    module = transformer()
    whole = Replicate()
    plan = {
        "self_attn": PrepareModuleInput(input_layouts=(whole, None), desired_input_layouts=(whole, None)),
        "mlp": PrepareModuleInput(input_layouts=whole, desired_input_layouts=whole),
        **{f"self_attn.{x}_proj": ColwiseParallel() for x in "qkv"},
        **{f"mlp.{x}_proj": ColwiseParallel() for x in ("gate", "up")},
        "self_attn.o_proj": RowwiseParallel(),
        "mlp.down_proj": RowwiseParallel(),
    }
    for layer in module.layers.values():
        parallelize_module(layer, mesh, plan)
    return seen(module, mesh)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    mp.start_processes(on_rank, (str(folder),), nprocs=2, start_method="spawn")
    both = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    assert both[0] == both[1]
    return {strategy: [tuple(row) for row in rows] for strategy, rows in both[0].items()}


# Parameters of the small model: a layer has 2 * 32 + 32 * 32 * 2 + 16 * 32 * 2 + 3 * 48 * 32 = 7744,
# embedding and head 64 * 32 = 2048 each, the last norm 32; FP32 throughout.
LAYER_BYTES = 4 * 7744
ROOT_BYTES = 4 * (2 * 2048 + 32)
ACTIVATION_BYTES = 4 * 32 * 32  # 32 tokens of 32 features


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_fsdp2_gathers_and_reduces_each_unit_under_its_own_name(two_ranks):
    assert two_ranks["fsdp2"] == [
        ("m0/F//all_gather@dp#0", ROOT_BYTES),
        ("m0/F/layers.0/all_gather@dp#0", LAYER_BYTES),
        ("m0/F/layers.1/all_gather@dp#0", LAYER_BYTES),
        ("m0/B//all_gather@dp#0", ROOT_BYTES),
        ("m0/B/layers.1/all_gather@dp#0", LAYER_BYTES),
        ("m0/B/layers.0/all_gather@dp#0", LAYER_BYTES),
        ("m0/B/layers.1/reduce_scatter@dp#0", LAYER_BYTES),
        ("m0/B/layers.0/reduce_scatter@dp#0", LAYER_BYTES),
        ("m0/B//reduce_scatter@dp#0", ROOT_BYTES),
    ]


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_ddp_reduces_buckets_in_their_order_and_every_gradient_once(two_ranks):
    names, sizes = zip(*two_ranks["ddp"], strict=True)
    assert names == tuple(f"m0/B/bucket{i}/all_reduce@dp#0" for i in range(len(names)))
    assert len(names) > 1
    assert sum(sizes) == 2 * LAYER_BYTES + ROOT_BYTES


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_tensor_parallelism_sums_activations_four_times_a_layer(two_ranks):
    assert two_ranks["tp"] == [
        *((f"m0/F/layers.{i}/all_reduce@tp#{k}", ACTIVATION_BYTES) for i in (0, 1) for k in (0, 1)),
        *((f"m0/B/layers.{i}/all_reduce@tp#{k}", ACTIVATION_BYTES) for i in (1, 0) for k in (0, 1)),
    ]

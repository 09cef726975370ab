"""The twin of two ranks, or more, held against as many real GPUs over NCCL, in one run on one machine."""

from __future__ import annotations

import gc
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.twin_cases import Case, ddp, fsdp
from playbook.spec import Link


def pairs(ranks: int = 2) -> dict[str, Case]:
    """Scenarios of so many ranks."""
    short: dict[str, Any] = {"micro_batch": 4, "sequence": 2048}
    long: dict[str, Any] = {"micro_batch": 2, "sequence": 4096}
    return {
        "ddp": ddp("llama-3.2-1b", ranks, 0, micro_batch=2, sequence=2048, recipe="bf16"),
        "fsdp2": fsdp("llama-3.2-1b", ranks, 0, **short),
        "fsdp2, reshard off": fsdp("llama-3.2-1b", ranks, 0, reshard=False, **short),
        "fsdp2, 8 layers of llama-3.1-8b": fsdp("llama-3.1-8b", ranks, 0, layers=8, **long),
    }


CHANNELS = (1, 16)
"""How many multiprocessors a modelled collective takes from compute: several are tried."""

SMALL, LARGE = 2**16, 2**28
"""Bytes of the two all-reduces that give latency and bandwidth of the link."""

REPEATS = 6
PORT = 29517


def measure_pairs(file: Path, machine: str, ranks: int = 2) -> None:
    """Run the real ranks, then their twins, and write both."""
    import torch
    from torch.multiprocessing.spawn import start_processes

    real_file = file.with_suffix(".real.json")
    start_processes(run_real, args=(str(real_file), ranks), nprocs=ranks, start_method="spawn")
    real = json.loads(real_file.read_text())
    real_file.unlink()
    link = Link(**real["link"])
    told: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "torch": torch.__version__,
        "command": f"python -m benchmarks.gpu_twin --pair --ranks {ranks}",
        "link": real["link"],
        "pairs": [],
    }
    for name, case in pairs(ranks).items():
        told["pairs"].append({"pair": name, "real": real["steps"][name], "twins": twins_of(case, link)})
        for twin in told["pairs"][-1]["twins"]:
            twin["step_ratio"] = twin["seconds"] / real["steps"][name]["seconds"]
        file.write_text(json.dumps(told, indent=1) + "\n")
    print(file.read_text())


def twins_of(case: Case, link: Link) -> list[dict[str, Any]]:
    """Twins of a rank of them, one for each number of channels."""
    import torch

    from playbook.runtime.twin_clock import make_hold
    from playbook.runtime.twin_step import clear, run_twin

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    scenario = replace(case.scenario, cluster=replace(case.scenario.cluster, intra=link))
    found = []
    for channels in CHANNELS:
        hold = make_hold(device, channels)
        told = run_twin(scenario, 0, network="modelled", device=device, hold=hold, repeats=REPEATS)
        gc.collect()
        clear(device)
        kept = ("seconds", "compute_s", "peak_bytes", "reserved_bytes")
        found.append({"channels": channels, "waits": type(hold).__name__, **{key: told[key] for key in kept}})
    return found


def run_real(rank: int, file: str, ranks: int) -> None:
    """Time the link and every scenario on one of the GPUs."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{PORT}", rank=rank, world_size=ranks, device_id=device
    )
    told = {
        "link": time_link(device),
        "steps": {name: time_real(case, device) for name, case in pairs(ranks).items()},
    }
    if rank == 0:
        Path(file).write_text(json.dumps(told))
    dist.destroy_process_group()


def time_link(device: Any) -> dict[str, float]:
    """Latency and bandwidth that explain a small and a large all-reduce of n ranks in a ring, each of which
    takes 2 (n − 1) (α + S / n B)."""
    import torch
    import torch.distributed as dist

    def seconds(size: int) -> float:
        buffer = torch.ones(size // 2, dtype=torch.bfloat16, device=device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for turn in range(12):
            if turn == 2:
                begin.record()
            dist.all_reduce(buffer)
        end.record()
        torch.cuda.synchronize(device)
        return begin.elapsed_time(end) / 1e3 / 10

    ranks = dist.get_world_size()
    steps = 2 * (ranks - 1)
    small, large = seconds(SMALL), seconds(LARGE)
    bandwidth = steps / ranks * (LARGE - SMALL) / max(large - small, 1e-9)
    latency = max(0.0, small / steps - SMALL / ranks / bandwidth)
    return {"latency_s": latency, "bandwidth_bytes_per_s": bandwidth}


def time_real(case: Case, device: Any) -> dict[str, Any]:
    """Step seconds and peak of one rank of several."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from playbook.runtime.torch_private import quiet
    from playbook.runtime.trace_step import default_dtype
    from playbook.runtime.twin_arrivals import Arrivals
    from playbook.runtime.twin_step import WARM_UPS, clear, make_step
    from playbook.runtime.twin_world import TwinPlace

    scenario = case.scenario
    dtype = torch.bfloat16 if scenario.recipe.parameter_bytes == 2 else torch.float32
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    place = TwinPlace(group=mesh.get_group("dp"), device=device, axis="dp", submesh=mesh)
    clear(device)
    with default_dtype(dtype), quiet():
        step = make_step(scenario, {"dp": place}, device, None, Arrivals())
        for _ in range(WARM_UPS):
            step.take()
        found = step.instants()
        times = []
        for _ in range(REPEATS):
            dist.barrier()
            times += step.times(1)
        del step
    clear(device)
    peak = max(row.allocated_bytes for row in found)
    return {"seconds": statistics.median(times), "repeats_s": times, "peak_bytes": peak}

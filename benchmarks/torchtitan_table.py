"""Published memory of torchtitan's runs (Llama 3.1, H100 96 GB and H200) against prediction.

Predicted is eager BF16: `torch.compile`, FP8 products and asynchronous tensor parallelism are what a row
"differs" by. Published is the reserved peak of the worst rank. Beyond the allocated peak the allocator holds
the room of other streams, which is never handed to the compute stream: FSDP2 makes reduced gradients on its
reduce-scatter stream and flat gathered buffers on its copy-in stream, and both stay held after they are free.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playbook.predict.memory import COMMUNICATOR_BYTES, CONTEXT_BYTES, training_memory
from playbook.predict.stages import blocks_of, context
from playbook.spec import Layout, Scenario, Workload, cluster
from playbook.spec import model as preset

DATA = Path(__file__).parent / "data" / "torchtitan_memory.csv"
GIB = 2**30
MODES = {"selective": "selective", "full": "full"}
FLATS = 2
"""Gathered flat buffers that are there at once: a unit's, and the next one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published run."""

    number: int
    model: str
    gpu: str
    dp: int
    tp: int
    pp: int
    cp: int
    local_batch: int
    sequence: int
    checkpointing: str
    schedule: str
    differs: tuple[str, ...]
    published_gib: float

    @property
    def gpus(self) -> int:
        """Ranks."""
        return self.dp * self.tp * self.pp * self.cp


def rows() -> list[Row]:
    """Rows with a memory figure."""
    with open(DATA, newline="") as file:
        return [read(row) for row in csv.DictReader(file) if row["mem_gib"]]


def read(row: dict[str, str]) -> Row:
    """A row of the file."""
    size = row["model"].removeprefix("Llama 3.1 ").lower()
    differs = [part for part in re.split(r" \+ ", row["techniques"]) if part in ("compile", "AsyncTP")]
    if row["precision"] != "bf16":
        differs.append(row["precision"])
    return Row(
        number=int(row["row"]),
        model=f"llama-3.1-{size}",
        gpu="h200" if row["gpu"].startswith("H200") else "h100-96",
        dp=int(row["dp_shard"]),
        tp=int(row["tp"]),
        pp=int(row["pp"]),
        cp=int(row["cp"]),
        local_batch=int(row["local_batch"]),
        sequence=int(row["seq"]),
        checkpointing=MODES[row["ac"].split()[0]],
        schedule={"Interleaved 1F1B": "interleaved-1f1b"}.get(row["pp_schedule"], "1f1b"),
        differs=tuple(differs),
        published_gib=float(row["mem_gib"]),
    )


def scenario(row: Row) -> Scenario:
    """The scenario of a run; a pipeline cuts the local batch into pp micro-batches and reduces once."""
    chunks = 2 if row.schedule == "interleaved-1f1b" else 1
    shape = preset(row.model)
    few, more = divmod(shape.layers, row.pp * chunks)
    cut = (few + 1,) * more + (few,) * (row.pp * chunks - more)
    return Scenario(
        shape,
        Workload(
            sequence=row.sequence,
            micro_batch=row.local_batch // row.pp,
            global_batch=row.local_batch * row.dp,
            recipe="fsdp2-mixed",
            recompute=row.checkpointing,
            gradient_sync="last" if row.pp > 1 else "every",
        ),
        Layout(
            dp=row.dp,
            tp=row.tp,
            pp=row.pp,
            cp=row.cp,
            zero=3,
            reshard=row.pp == 1,
            schedule=row.schedule,
            chunks=chunks,
            sequence_parallel=row.tp > 1,
            stage_layers=cut if row.pp > 1 else None,
        ),
        cluster(f"{-(-row.gpus // 8)}x8-{row.gpu}"),
        framework="torchtitan",
    )


def other_streams_bytes(s: Scenario, stage: int) -> int:
    """Room that the reduce-scatter and the copy-in stream keep: reduced gradients, two flat buffers."""
    slots = range(stage, s.layout.stages, s.layout.pp)
    tensors = [t for slot in slots for block in blocks_of(s, slot, context(s)) for t in block.tensors]
    reduced = sum(number(t.bytes) for t in tensors if t.name == "gradient shard")
    flats = sorted((number(t.bytes) for t in tensors if t.name == "flat"), reverse=True)
    return reduced + sum(flats[:FLATS])


def number(size: object) -> int:
    """A size in bytes."""
    assert isinstance(size, int)
    return size


def predict(row: Row) -> dict[str, Any]:
    """Allocated peak of the worst rank, reserved, error, and whether the run is judged to fit its card."""
    s = scenario(row)
    found = training_memory(s)
    reserved = found.peak_bytes + other_streams_bytes(s, found.worst_rank["pp"])
    device = reserved + CONTEXT_BYTES + COMMUNICATOR_BYTES
    return {
        "row": row.number,
        "run": f"{row.model}, dp {row.dp} tp {row.tp} pp {row.pp} cp {row.cp}, {row.sequence} tokens",
        "differs by": list(row.differs),
        "peak GiB": round(found.peak_bytes / GIB, 2),
        "instant": found.instant,
        "reserved GiB": round(reserved / GIB, 2),
        "published GiB": row.published_gib,
        "error": round(reserved / GIB / row.published_gib - 1, 4),
        "fits": device <= s.cluster.gpu.memory_bytes and found.fits,
    }


def table() -> dict[str, Any]:
    """The whole table."""
    found = [predict(row) for row in rows()]
    by_row = {entry["row"]: entry for entry in found}
    sweep = [entry for entry in found if "llama-3.1-8b" in entry["run"] and "cp 1," not in entry["run"]]
    values = [entry["reserved GiB"] for entry in sweep]
    told = by_row[2]["reserved GiB"] - by_row[5]["reserved GiB"]
    published = by_row[2]["published GiB"] - by_row[5]["published GiB"]
    errors = sorted(abs(entry["error"]) for entry in found)
    return {
        "summary": {
            "rows": len(found),
            "judged to fit": sum(entry["fits"] for entry in found),
            "median error": errors[len(errors) // 2],
            "CP sweep, highest over lowest": round(max(values) / min(values) - 1, 4),
            "8 to 128 GPUs, GiB": [round(told, 2), round(published, 2), round(told / published - 1, 4)],
        },
        "rows": found,
    }

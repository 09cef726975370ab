"""Published memory of 2199 nanotron runs (The Ultra-Scale Playbook, 2025) against prediction.

The figure's memory is `torch.cuda.max_memory_reserved` of rank 0, in GiB though it says GB (nanotron's
`helpers.py`, where rank 0 writes the table): the first stage, with as many micro-batches in flight as there
are stages.

Two kinds of run are in the table, of the same layouts, up to a factor of two apart. In the slower ones memory
is what the step needs. In the faster ones it is larger, by what a host that is far ahead of its device holds
(`ultrascale_replay`). Nothing in a row says which kind it is; its speed does in most cases.
"""

import csv
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from playbook.frameworks.nanotron import stage_layers
from playbook.predict.orders import columns_of, pipeline
from playbook.predict.stages import blocks_of, context, layer_numbers
from playbook.program.lay import Stage
from playbook.program.order import Columns
from playbook.program.summary import rank_memory
from playbook.spec import Layout, Model, Scenario, Workload

DATA = Path(__file__).parent / "data"
GIB = 2**30
SEQUENCE = 4096
WHOLE = ("gpus", "dp", "tp", "pp", "mbs", "grad_acc", "zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row of the table."""

    row: int
    model: str
    gpus: int
    dp: int
    tp: int
    pp: int
    mbs: int
    grad_acc: int
    zero: int
    status: str
    reserved_gib: float | None
    tokens_per_s_gpu: float | None

    @property
    def group(self) -> tuple[str, int]:
        """What the split is drawn over."""
        return self.model, self.gpus


def runs() -> list[Run]:
    """Every row of the table."""
    with open(DATA / "ultrascale_memory.csv", newline="") as file:
        return [read(row) for row in csv.DictReader(file)]


def read(row: dict[str, str]) -> Run:
    """A row of the file."""
    numbers = {name: int(row[name]) for name in ("row", *WHOLE)}
    return Run(
        model=row["model"],
        status=row["status"],
        reserved_gib=float(row["mem_gb"]) if row["mem_gb"] else None,
        tokens_per_s_gpu=float(row["tok_s_gpu"]) if row["tok_s_gpu"] else None,
        **numbers,
    )


def split() -> dict[str, set[tuple[str, int]]]:
    """Groups of the training half and of the half that is held out."""
    drawn = json.loads((DATA / "ultrascale_split.json").read_text())
    return {
        half: {(model, gpus) for model, counts in drawn[half].items() for gpus in counts}
        for half in ("training", "held_out")
    }


@cache
def models() -> dict[str, Model]:
    """The four models."""
    with open(DATA / "ultrascale_models.csv", newline="") as file:
        return {row["model"]: model_of(row) for row in csv.DictReader(file)}


def model_of(row: dict[str, str]) -> Model:
    """A model of the script's shapes."""
    heads, hidden = int(row["heads"]), int(row["hidden"])
    return Model(
        name=f"ultrascale-{row['model']}",
        family="llama",
        layers=int(row["layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(row["kv_heads"]),
        head_dim=hidden // heads,
        ffn=int(row["ffn"]),
        vocabulary=int(row["vocab"]),
        tied=row["tied_embeddings"] == "True",
        max_sequence=SEQUENCE,
    )


def scenario(run: Run, stage: int) -> Scenario:
    """A scenario with a stage of a run; the others are given as many layers.

    More micro-batches than stages repeat what is there already.
    """
    model = models()[run.model]
    layers = max(stage_layers(model, run.pp)[stage], 1)
    count = min(run.grad_acc, run.pp + 1)
    return Scenario(
        replace(model, layers=layers * run.pp),
        Workload(
            sequence=SEQUENCE,
            micro_batch=run.mbs,
            global_batch=run.dp * run.mbs * count,
            recipe="bf16-fp32grad",
            gradient_sync="last",
        ),
        Layout(dp=run.dp, tp=run.tp, pp=run.pp, zero=run.zero, sequence_parallel=run.tp > 1),
        framework="nanotron",
    )


def laid_stage(run: Run, stage: int) -> tuple[Stage, Columns]:
    """A stage of a run (−1: the last, which is taken to have the head), and the order of its runs."""
    s = scenario(run, stage)
    slot = stage % run.pp
    laid = Stage(blocks_of(s, slot, context(s)), layer_numbers(s, slot))
    return laid, columns_of(s, slot, pipeline(s))


def peak_bytes(run: Run, stage: int = 0) -> int:
    """Allocated peak of the first stage of a run, or of the last (−1)."""
    laid, columns = laid_stage(run, stage)
    return rank_memory({stage % run.pp: laid}, columns).peak_bytes


def milliseconds_a_layer(run: Run) -> float:
    """Time of a micro-batch in one layer, from the published tokens a second, without the bubble."""
    assert run.tokens_per_s_gpu is not None
    stage_s = run.mbs * SEQUENCE / (run.tokens_per_s_gpu * run.tp * run.pp)
    busy = run.grad_acc / (run.grad_acc + run.pp - 1)
    return 1000 * stage_s * busy / stage_layers(models()[run.model], run.pp)[0]

"""`playbook params`: what a model has, counted: weights by part, layer and stage, cached values, FLOPs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from playbook.cli.options import Json, ModelName
from playbook.cli.output import write_json, write_pairs, write_table
from playbook.spec import Layout, Model
from playbook.spec import model as find_model
from playbook.spec.stage_layers import read_stage_layers
from playbook.units import significant, thousands

if TYPE_CHECKING:
    from playbook.predict.flops import FlopsPerToken
    from playbook.predict.stage_weights import StageWeights

WIDTHS = {"fp32": 4, "bf16": 2, "fp8": 1, "int4": 0.5}
"""Bytes of a weight by format, its scales left out."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(params)


def params(
    model: ModelName,
    sequence: Annotated[int | None, typer.Option(help="Tokens a sequence, for the FLOPs.")] = None,
    pp: Annotated[int, typer.Option(help="Pipeline stages to count one by one.")] = 1,
    stage_layers: Annotated[str | None, typer.Option(help="Layers of each stage, as 21,20,20.")] = None,
    tp: Annotated[int, typer.Option(help="Tensor parallel degree, for what a rank of a stage holds.")] = 1,
    json: Json = False,
) -> None:
    """Count a model's parameters, by part, layer and stage.

    And what a token computes and caches. Example: playbook params --model deepseek-v3
    """
    from playbook.predict.flops import flops_per_token
    from playbook.predict.stage_weights import stage_weights

    found = find_model(model)
    layers = read_stage_layers(stage_layers)
    layout = Layout(pp=len(layers) if layers and pp == 1 else pp, tp=tp, stage_layers=layers)
    stages, flops = stage_weights(found, layout), flops_per_token(found, sequence)
    if json:
        write_json(as_content(found, flops, stages))
        return
    write_pairs(describe(found))
    write_flops(flops)
    if layout.stages > 1 or tp > 1:
        write_stages(stages, tp)
        if found.tied and layout.stages > 1:
            typer.echo(f"the last holds a copy of the tied table: {thousands(found.embedding)} parameters")
    if found.unread:
        typer.echo(f"\n{found.unread}")


def as_content(model: Model, flops: "FlopsPerToken", stages: "tuple[StageWeights, ...]") -> dict[str, Any]:
    """What `--json` prints."""
    module = sum(weight.numel for weight in model.mtp_parameters())
    return {
        "total": model.parameters,
        "active": model.active,
        "active_without_input_embedding": model.active_without_input_embedding,
        "embedding": model.embedding,
        "non_embedding": model.non_embedding,
        "tied": model.tied,
        "stored": model.stored_parameters,
        "per_layer": model.per_layer,
        "kinds": [{"name": name, "layers": n, "parameters": size} for name, n, size in kinds(model)],
        "mtp": {"modules": model.mtp, "parameters": model.mtp * module, "shared_tables": 2 * model.embedding},
        "balancing_numbers": model.balancing_numbers,
        "qkv_features": model.qkv_features,
        "windows": model.windows,
        "kv_bytes_per_token": model.kv_bytes_per_token(2),
        "weight_bytes": {name: model.parameters * width for name, width in WIDTHS.items()},
        "flops": {
            "sequence": flops.sequence,
            **{name: value for name, _, value in flops.conventions()},
        },
        "per_stage": [
            {
                "stage": stage.stage,
                "layers": stage.layers,
                "parameters": stage.parameters,
                "share_bytes": WIDTHS["bf16"] * stage.share,
                "rank_bytes": WIDTHS["bf16"] * stage.rank,
            }
            for stage in stages
        ],
        "ignored_keys": model.ignored_keys,
    }


def kinds(model: Model) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the number and the elements of one, for each kind of layer."""
    for kind in model.kinds:
        routed = model.moe is not None and model.moe.in_layer(kind)
        alike = sum(model.kind_of(layer) == kind for layer in range(model.layers))
        yield "with experts" if routed else "dense", alike, model.per_layer[kind]


def describe(model: Model) -> Iterator[tuple[str, str]]:
    """Yield names and values of the table for people; what a model has not is left out."""
    yield "model", model.name
    yield "source", model.source
    yield "total", f"{thousands(model.parameters)} parameters"
    yield "active", f"{thousands(model.active)} parameters of a token, both tables counted"
    bare = thousands(model.active_without_input_embedding)
    tie = "the head is the table, which counts" if model.tied else "the table it is looked up in left out"
    yield "active without input embedding", f"{bare} parameters, {tie}"
    yield "embedding", f"{thousands(model.embedding)} parameters, {'tied' if model.tied else 'head as many'}"
    yield "without tables", f"{thousands(model.non_embedding)} parameters"
    for name, number, size in kinds(model):
        yield f"layer, {name}", f"{thousands(size)} parameters, {number} of {model.layers} layers"
    if model.moe is not None:
        moe = model.moe
        shared = f", shared ones {moe.shared_ffn} wide together" if moe.shared_ffn else ""
        yield "experts", f"{moe.active} of {moe.experts} a token, each {moe.ffn} wide{shared}"
        yield "", "memory goes by the total, arithmetic by the active ones"
    if model.mtp:
        module = sum(weight.numel for weight in model.mtp_parameters())
        yield "multi-token", f"{model.mtp} x {thousands(module)} parameters, not in the total"
    if model.stored_parameters != model.parameters:
        rest = ", with the multi-token modules" if model.mtp else ""
        yield "in a file", f"{thousands(model.stored_parameters)} if tables are stored for each use{rest}"
    queries, keys, values = model.qkv_features
    width = f"{queries} queries, {keys} keys, {values} values of {model.hidden} hidden features"
    yield "attention", f"{width}; {model.heads} heads of {model.head_dim}"
    limited = [window for window in model.windows if window is not None]
    if limited:
        kind = "their chunk of" if model.chunked else "the last"
        yield "windows", f"{len(limited)} of {model.layers} layers see {kind} {thousands(limited[0])} tokens"
    yield "KV cache", f"{thousands(model.kv_bytes_per_token(2))} B a token in BF16, one copy"
    formats = (f"{significant(model.parameters * w / 1e9, 4)} GB {name}" for name, w in WIDTHS.items())
    yield "weights", ", ".join(formats) + " (scales left out)"


def write_flops(flops: "FlopsPerToken") -> None:
    """Print the FLOPs of a token by each convention."""
    typer.echo(f"\nFLOPs of a token in a sequence of {thousands(flops.sequence)}, nothing recomputed:")
    rows = [
        (name.replace("_", " "), formula, f"{significant(value / 1e9, 4)} GFLOP")
        for name, formula, value in flops.conventions()
    ]
    write_table(("convention", "formula", "a token"), rows, (0, 1))
    typer.echo("N active weights without the input table, A attention over the whole matrix, C causal")


def write_stages(stages: "tuple[StageWeights, ...]", tp: int) -> None:
    """Print the weights of each stage, and which one holds most."""
    typer.echo("")
    rows = [
        (
            str(stage.stage),
            str(stage.layers),
            thousands(stage.parameters),
            f"{significant(WIDTHS['bf16'] * stage.rank / 2**30, 4)} GiB",
        )
        for stage in stages
    ]
    write_table(("stage", "layers", "parameters", f"BF16 a rank, tp={tp}"), rows, ())
    most = max(stages, key=lambda stage: stage.rank)
    mean = sum(stage.rank for stage in stages) / len(stages)
    typer.echo(f"stage {most.stage} holds most, {significant(most.rank / mean, 4)} times the mean")

"""`playbook kv` and `playbook inference`: the key-value cache, and the peak of an inference engine."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from playbook.cli.lengths import length
from playbook.cli.options import CLUSTER, GPU, Json, ModelName, pick_cluster
from playbook.cli.output import write_json, write_pairs, write_table
from playbook.cli.predict import both, write_terms
from playbook.spec import Layout, Serving, model
from playbook.spec.byte_sizes import read_size
from playbook.units import GB, counted, gb, mb, percent, size, thousands

if TYPE_CHECKING:
    from playbook.predict.inference import InferenceMemory
    from playbook.predict.kv_cache import KvCache

KV_KEYS = (
    *("bytes_per_token", "bytes_per_rank", "total_bytes", "engine_bytes", "copies", "expanded_bytes"),
    "padding_bytes",
    *("slope_bytes", "constant_bytes", "rows", "note"),
)
INFERENCE_KEYS = (
    *("peak_bytes", "reserved_bytes", "device_bytes", "instant", "worst_rank", "fits", "terms", "per_stage"),
    *("pool_bytes", "capacity_tokens", "capacity_sequences", "largest_concurrency", "note"),
)

DEFAULT_TOKENS = 4096
LEFT_OUT = "4096, or as far as a model's learned positions go, if left out"

BATCHED = "Tokens of one step at most; vLLM's for the GPU, 8192 or 2048, if left out."

POOL_KEYS = ("bytes", "blocks", "tokens", "sequences")

KvType = Annotated[str, typer.Option(help="Format of the cache, such as bf16, fp8, fp8-per-head or nvfp4.")]
Tensor = Annotated[int, typer.Option(help="Tensor parallel degree.")]
Replicas = Annotated[int, typer.Option(help="Replicas among which sequences are dealt out.")]
Context = Annotated[int, typer.Option(help="Ranks that split each sequence's cache.")]
Block = Annotated[int, typer.Option(help="Tokens of a page.")]
Hybrid = Annotated[bool, typer.Option(help="Whether pages behind a window are given back.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(name="kv")(kv)
    app.command(name="inference")(inference)


def kv(
    model_name: ModelName,
    dtype: KvType = "bf16",
    tokens: Annotated[int | None, typer.Option(help=f"Tokens of each sequence; {LEFT_OUT}.")] = None,
    sequences: Annotated[int, typer.Option(help="Sequences over all replicas.")] = 1,
    tp: Tensor = 1,
    dp: Replicas = 1,
    cp: Context = 1,
    block: Block = 16,
    max_batched_tokens: Annotated[int, typer.Option(help="Tokens of one step at most.")] = 8192,
    hybrid_allocator: Hybrid = True,
    pool: Annotated[
        str | None,
        typer.Option(help="A rank's pool, as an engine's log says, such as 3.81GiB: tells what it holds."),
    ] = None,
    json: Json = False,
) -> None:
    """Predict the key-value cache: ideal, on a rank, in pages.

    Example: playbook kv --model deepseek-v3 --tokens 32768 --tp 8
    """
    from playbook.predict.kv_cache import kv_cache

    cached = model(model_name)
    found = kv_cache(
        cached,
        length("tokens", tokens, DEFAULT_TOKENS, cached),
        sequences,
        dtype,
        tp=tp,
        dp=dp,
        cp=cp,
        block=block,
        batched=max_batched_tokens,
        hybrid=hybrid_allocator,
    )
    held = None if pool is None else found.pool(read_size(pool))
    if json:
        capacity = {} if held is None else {"pool": {key: getattr(held, key) for key in POOL_KEYS}}
        write_json({key: getattr(found, key) for key in KV_KEYS} | capacity)
        return
    write_cache(found)
    if held is not None:
        text = f"{thousands(held.tokens)} tokens, {counted(held.sequences, 'sequence')} of this length"
        write_pairs([("the pool holds", text)])
    write_end(found.note)


def write_cache(found: "KvCache") -> None:
    """Print a cache."""
    pairs = [
        ("a token", f"{thousands(found.bytes_per_token)} bytes in all layers, one copy"),
        ("all sequences", f"{amount(found.total_bytes)}, one copy of {thousands(found.sequences)}"),
        ("on a rank", f"{amount(found.bytes_per_rank)}, with windows and copies"),
        ("in an engine", f"{amount(found.engine_bytes)} on a rank, in pages of {found.block} tokens"),
    ]
    if found.expanded_bytes and found.expanded_bytes > found.total_bytes:
        pairs.append(("one head each", f"{amount(found.expanded_bytes)} if every query head had its own"))
    write_pairs(pairs)
    typer.echo("")
    write_kinds(found.rows)


def write_kinds(rows: list[dict[str, Any]]) -> None:
    """Print what each kind of layers takes."""
    write_table(
        ("layers", "number", "heads", "on a rank", "copies", "window", "a token", "ideal", "in pages"),
        [
            (
                row["kind"],
                str(row["layers"]),
                str(row["heads"]),
                str(row["heads_per_rank"]),
                str(row["copies"]),
                thousands(row["window"]) if row["window"] else "all",
                size(row["bytes_per_token"]),
                size(row["bytes_per_rank"]),
                size(row["engine_bytes"]),
            )
            for row in rows
        ],
    )


def inference(
    model_name: ModelName,
    prompt: Annotated[int | None, typer.Option(help=f"Tokens of a prompt; {LEFT_OUT}.")] = None,
    output: Annotated[int, typer.Option(help="Tokens of an answer.")] = 512,
    concurrency: Annotated[int, typer.Option(help="Sequences at once, over all replicas.")] = 64,
    weights: Annotated[str, typer.Option(help="Format of the weights, such as bf16, fp8, mxfp4.")] = "bf16",
    kv_dtype: KvType = "bf16",
    tp: Tensor = 1,
    pp: Annotated[int, typer.Option(help="Pipeline parallel degree.")] = 1,
    dp: Replicas = 1,
    cp: Context = 1,
    ep: Annotated[int, typer.Option(help="Expert parallel degree.")] = 1,
    gpu: Annotated[str | None, typer.Option(help=GPU)] = None,
    cluster: Annotated[str | None, typer.Option(help=CLUSTER)] = None,
    block: Block = 16,
    max_batched_tokens: Annotated[int | None, typer.Option(help=BATCHED)] = None,
    utilisation: Annotated[float, typer.Option(help="Part of the memory that the engine may take.")] = 0.9,
    hybrid_allocator: Hybrid = True,
    json: Json = False,
) -> None:
    """Predict the peak memory of an inference engine, by term.

    And what its pool of cache holds. Example: playbook inference --model llama-3.1-70b --tp 8
    """
    from playbook.predict.inference import inference_memory

    served, layout = model(model_name), Layout(dp=dp, tp=tp, pp=pp, cp=cp, ep=ep)
    serving = Serving(
        prompt=length("prompt", prompt, DEFAULT_TOKENS, served, output),
        output=output,
        concurrency=concurrency,
        kv_dtype=kv_dtype,
        weights=weights,
        block=block,
        max_batched_tokens=max_batched_tokens,
        utilisation=utilisation,
        hybrid_allocator=hybrid_allocator,
    )
    machines = pick_cluster(cluster, gpu, layout.world)
    found = inference_memory(served, serving, layout, machines)
    if json:
        write_json({key: getattr(found, key) for key in INFERENCE_KEYS})
        return
    write_inference(found)


def write_inference(found: "InferenceMemory") -> None:
    """Print a prediction."""
    gpu, serving = found.cluster.gpu, found.serving
    part = f"{percent(serving.utilisation)} of {gpu.name}'s {gb(gpu.memory_bytes)}"
    write_pairs(
        [
            ("peak allocated", f"{both(found.peak_bytes)} at {found.instant}"),
            ("with the driver's context", gb(found.engine_bytes)),
            ("the engine may take", f"{gb(found.budget_bytes)}, {part}"),
            (
                "this load",
                f"{counted(serving.concurrency, 'sequence')} at once: "
                f"{spare(found.engine_bytes, found.budget_bytes)}",
            ),
            ("pool for the cache", f"{both(max(0, found.pool_bytes))} on a rank"),
            (
                "it holds",
                f"{thousands(found.capacity_tokens)} tokens, the size of "
                f"{counted(found.capacity_sequences, 'sequence')} of {thousands(serving.sequence)}",
            ),
            ("at once at most", at_once(found)),
        ]
    )
    typer.echo("")
    write_terms(found.terms, found.peak_bytes)
    write_end(found.note)


def at_once(found: "InferenceMemory") -> str:
    """Say how many sequences run at once, and why that is not what the pool of this load holds."""
    most = found.largest_concurrency
    text = counted(most, "such sequence") if most else "not one such sequence"
    if 0 < most < found.capacity_sequences:
        return f"{text}: a step for more of them has more rows of logits, which leave less pool"
    return text


def spare(need_bytes: int, limit_bytes: int) -> str:
    """Say whether a need fits, and what is left or missing."""
    if need_bytes <= limit_bytes:
        return f"fits, {percent(need_bytes / limit_bytes)} of it, {size(limit_bytes - need_bytes)} to spare"
    return f"does not fit, {size(need_bytes - limit_bytes)} are missing"


def write_end(note: str) -> None:
    """Print the source and the note."""
    typer.echo("source: formula")
    if note:
        typer.echo(f"note: {note}")


def amount(size_bytes: float) -> str:
    """Write bytes in GB and GiB, small ones in MB."""
    return both(size_bytes) if size_bytes >= GB else mb(size_bytes)

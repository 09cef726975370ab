"""Options that commands share: every field of Workload and Layout has one of the same name."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Annotated, Any

import typer

from playbook.cli.lengths import length
from playbook.spec import Cluster, Layout, Lora, Scenario, Workload, cluster, model, smallest_cluster
from playbook.spec.degrees import check_has_experts
from playbook.spec.rules import whole
from playbook.spec.scenario import PREDICTED
from playbook.spec.stage_layers import read_stage_layers

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
MODEL = "Preset such as llama-3.1-8b (an unknown name lists them), or path of a Hugging Face config.json."
ModelName = Annotated[str, typer.Option("--model", help=MODEL)]
GPU = "GPU, in as few nodes of eight as hold all ranks; h100 if left out."
CLUSTER = "Cluster preset, or NODESxGPUS-GPU such as 2x8-h100; instead of --gpu."

SCENARIO = {
    "model": MODEL,
    "framework": f"Whose accounting: {', '.join(PREDICTED)}.",
    "gpu": GPU,
    "cluster": CLUSTER,
    "rank": "Rank to look at; the one with the highest peak if left out.",
}
WORKLOAD = {
    "sequence": "Tokens a sequence; 4096, or all of a model's learned positions, if left out.",
    "micro_batch": "Sequences per replica and forward.",
    "global_batch": "Sequences per optimizer step over all replicas; dp x micro_batch x pp if left out.",
    "recipe": "Dtypes of weights, gradients and optimizer, such as fp32 (an unknown name lists them).",
    "recompute": "What backward computes again: none, selective (the attention core) or full (the layer).",
    "attention": "flash, which keeps no scores, or math, which does.",
    "loss": "Logits at once: eager (all), chunked (some rows) or parallel (a TP rank's words).",
    "loss_chunk": "Rows of logits that a chunked loss holds at a time.",
    "optimizer_kernel": "How the optimizer walks the weights: fused, foreach or for-loop.",
    "offload": "Where state is kept off the GPU: none, cpu or nvme.",
    "offload_parts": "What is offloaded: optimizer, gradients (and optimizer), or all.",
    "lora": "Adapters, as RANK or RANK:TARGET,TARGET, with :fp32 behind it for tables in FP32 under qlora.",
    "kernels": "Whose kernels save tensors: cuda or cpu.",
    "gradient_sync": "Reduce gradients after every micro-batch, or after the last: every or last.",
}
LAYOUT = {
    "dp": "Data parallel degree (context parallel ranks left out).",
    "tp": "Tensor parallel degree.",
    "pp": "Pipeline parallel degree.",
    "cp": "Context parallel degree.",
    "ep": "Expert parallel degree.",
    "zero": "ZeRO stage, 0 (share nothing) to 3 (share optimizer, gradients, parameters).",
    "sequence_parallel": "Split the norms' activations among TP ranks.",
    "schedule": "Pipeline schedule, such as gpipe or zbv (an unknown name lists them), or a CSV file.",
    "chunks": "Model chunks a pipeline rank holds; 2 for V-shaped schedules, else 1, if left out.",
    "dp_replicate": "Replicas among the dp ranks (HSDP).",
    "ep_rule": "Expert ranks are ranks of dp, cp and tp (folded), or a factor of the world, with the same "
    "tokens (independent).",
    "etp": "Tensor parallel degree inside an expert.",
    "reshard": "Free gathered parameters after forward.",
    "stage_layers": "Layers of each stage, as 21,20,20,19.",
    "cp_method": "How keys and values travel under cp: ring, all-gather or ulysses.",
    "cp_split": "How cp cuts a sequence: contiguous or zigzag.",
    "routing": "What experts do with too many tokens: dropless, or capacity, which drops some.",
}


def with_scenario(command: Callable[..., Any], framework: str = SCENARIO["framework"]) -> Callable[..., Any]:
    """Give a command the options of a scenario; it is called with the `Scenario`, `rank` and `as_json`.

    `framework` is the help of that option, where it is about more than accounting.
    """

    def call(**given: Any) -> Any:
        as_json, rank = given.pop("json"), given.pop("rank")
        return command(build_scenario(given), rank=rank, as_json=as_json)

    parameters = [
        _parameter("model", str, inspect.Parameter.empty, SCENARIO["model"]),
        *_fields(Workload, WORKLOAD),
        *_fields(Layout, LAYOUT),
        _parameter("framework", str, "textbook", framework),
        _parameter("gpu", str | None, None, SCENARIO["gpu"]),
        _parameter("cluster", str | None, None, SCENARIO["cluster"]),
        _parameter("rank", int | None, None, SCENARIO["rank"]),
        inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json),
    ]
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def behind_model(
    plain: Iterable[inspect.Parameter], extra: Iterable[inspect.Parameter]
) -> list[inspect.Parameter]:
    """Put a command's own options behind `--model`, before those that it shares with others."""
    first, *others = plain
    return [first, *extra, *others]


def _fields(kind: type, helps: dict[str, str]) -> list[inspect.Parameter]:
    made = []
    for field in fields(kind):
        default = None if field.name == "sequence" else field.default
        plain = type(default) if isinstance(default, bool | int | str) else None
        whole_number = field.name in ("sequence", "global_batch", "chunks")
        made.append(
            _parameter(
                field.name, plain or ((int if whole_number else str) | None), default, helps[field.name]
            )
        )
    return made


def _parameter(name: str, kind: Any, default: Any, text: str) -> inspect.Parameter:
    words = name.replace("_", "-")
    names = f"--{words}/--no-{words}" if kind is bool else f"--{words}"
    annotation = Annotated[kind, typer.Option(names, help=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def build_scenario(given: dict[str, Any]) -> Scenario:
    """Make a scenario from the values of its options."""
    asked = model(given["model"])
    check_has_experts(asked, given["ep"], given["etp"])
    layout = Layout(**{**_pick(given, LAYOUT), "stage_layers": read_stage_layers(given["stage_layers"])})
    sequence = length("sequence", given["sequence"], Workload().sequence, asked)
    workload = Workload(**{**_pick(given, WORKLOAD), "sequence": sequence, "lora": read_lora(given["lora"])})
    machines = pick_cluster(given["cluster"], given["gpu"], layout.world)
    return Scenario(asked, workload, layout, machines, framework=given["framework"])


def _pick(given: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {name: given[name] for name in names}


def pick_cluster(name: str | None, gpu: str | None, world: int) -> Cluster:
    """Return the cluster of `--cluster`, or the smallest one of `--gpu`; both at once must agree."""
    if name is None:
        return smallest_cluster(world, gpu or "h100")
    found = cluster(name)
    if gpu is not None and gpu.lower() != found.gpu.name:
        raise ValueError(
            f"--gpu {gpu} but cluster {name} has {found.gpu.name}; give one of --gpu and --cluster"
        )
    return found


def read_lora(text: str | None) -> Lora | None:
    """Read `--lora 8`, `--lora 8:q_proj,v_proj` or `--lora 8:q_proj,v_proj:fp32`."""
    if text is None:
        return None
    rank, *rest = text.split(":")
    if not rank.isdigit() or len(rest) > 2:  # noqa: PLR2004  # targets and tables
        raise ValueError(f"lora={text!r} must be a rank, or RANK:TARGET,TARGET such as 8:q_proj,v_proj")
    number = whole("lora rank", int(rank))
    lora = Lora(rank=number, targets=tuple(rest[0].split(","))) if rest and rest[0] else Lora(rank=number)
    return replace(lora, tables=rest[1]) if len(rest) > 1 else lora

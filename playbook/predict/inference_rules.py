"""What a layout of an inference engine must obey, and the engine's default of tokens a step."""

import math

from playbook.spec import Cluster, Gpu, Layout, Model, Serving
from playbook.spec.cluster import MIB
from playbook.spec.rules import divisors
from playbook.units import counted

LARGE_BYTES = 70 * 1024 * MIB
"""GPUs from here on take large steps by default."""

LARGE_STEP, SMALL_STEP = 8192, 2048


def step_tokens(serving: Serving, gpu: Gpu) -> int:
    """Tokens that one step takes at most.

    Notes
    -----
    vLLM's server takes 8192 on a GPU of 70 GiB or more that is no A100, else 2048 (engine/arg_utils.py).
    """
    if serving.max_batched_tokens is not None:
        return serving.max_batched_tokens
    large = gpu.memory_bytes >= LARGE_BYTES and not gpu.name.startswith("a100")
    return LARGE_STEP if large else SMALL_STEP


def works_for(model: Model) -> list[int]:
    """Tensor-parallel degrees that can serve a model."""
    sizes = [model.heads, model.ffn, *([model.moe.ffn] if model.moe else [])]
    return [degree for degree in divisors(math.gcd(*sizes)) if heads_divide(model, degree)]


def heads_divide(model: Model, tp: int) -> bool:
    """Whether ranks have whole key-value heads or whole copies; a latent head is always copied."""
    return model.mla is not None or model.kv_heads % tp == 0 or tp % model.kv_heads == 0


def check_layout(model: Model, layout: Layout, cluster: Cluster) -> None:
    """Refuse degrees that an engine has no use for, or that do not divide the model."""
    for given, what in (
        (layout.zero, f"zero={layout.zero}: an engine keeps no gradients or states to share; use zero=0"),
        (layout.stages != layout.pp, f"chunks={layout.chunks}: an engine's rank holds one; use chunks=1"),
    ):
        if given:
            raise ValueError(what)
    if layout.world > cluster.gpus and not cluster.shared:
        raise ValueError(
            f"the layout has {layout.world} ranks but cluster {cluster.name} has "
            f"{counted(cluster.gpus, 'GPU')}; use "
            f"degrees whose product is at most {cluster.gpus}"
        )
    works = works_for(model)
    if layout.tp not in works:
        raise ValueError(
            f"tp={layout.tp} does not divide heads={model.heads}, kv_heads={model.kv_heads} (or is no "
            f"multiple of them) and the feed-forward features of {model.name}; "
            f"tp in {', '.join(map(str, works))} would work"
        )
    if layout.ep > 1 and model.moe is None:
        raise ValueError(f"ep={layout.ep} but {model.name} has no experts; use ep=1")


def check_length(model: Model, what: str, tokens: int, others: int = 0) -> None:
    """Refuse a sequence that is longer than a model's learned positions.

    Parameters
    ----------
    model
        What is served.
    what, tokens
        The field that gives the length, and its value.
    others
        Tokens of the sequence that another field gives.
    """
    most = model.positions - others
    if not model.positions or tokens <= most:
        return
    with_others = f" with {others} more" if others else ""
    use = f"{what}={most} or less" if most > 0 else f"fewer than {model.positions} tokens in all"
    raise ValueError(
        f"{what}={tokens}{with_others} but {model.name} has {model.positions} learned positions; use {use}"
    )


def check_stages(model: Model, layout: Layout) -> tuple[int, ...]:
    """Layers of each pipeline rank: those given, or equal parts with what remains on the middle ranks.

    Notes
    -----
    vLLM gives each rank layers // pp, and the remainder one by one to the ranks before the last, from the
    last but one backwards (distributed/utils.py, get_pp_indices).
    """
    if layout.stage_layers is not None:
        if sum(layout.stage_layers) != model.layers:
            raise ValueError(
                f"stage_layers add up to {sum(layout.stage_layers)} but {model.name} has {model.layers} "
                f"layers; give {layout.pp} numbers whose sum is {model.layers}"
            )
        return layout.stage_layers
    if layout.pp > model.layers:
        raise ValueError(
            f"pp={layout.pp} but {model.name} has {counted(model.layers, 'layer')}; use pp={model.layers}"
        )
    base, more = divmod(model.layers, layout.pp)
    return tuple(base + (layout.pp - 1 - more <= rank < layout.pp - 1) for rank in range(layout.pp))

"""What the keys of families with routed experts mean: Mixtral, Qwen MoE, OLMoE, gpt-oss and Llama 4.

Meanings and defaults are those of the configuration and modelling classes of Hugging Face transformers 5:
`MixtralConfig`, `Qwen2MoeConfig`, `Qwen3MoeConfig`, `OlmoeConfig`, `GptOssConfig`, `Llama4TextConfig`.
"""

from collections.abc import Iterable
from typing import Any

from playbook.spec.config_dense import FULL, SLIDING, biases, every_layer
from playbook.spec.config_reader import Reader, common, head_dim, windows
from playbook.spec.moe import Moe


def routing(reader: Reader) -> None:
    """Read the keys that say which experts a token goes to: they change no size and no number of experts."""
    reader.without_part("norm_topk_prob", "router_aux_loss_coef", "routed_scaling_factor", "aux_loss_alpha")
    reader.without_part("n_group", "topk_group", "topk_method", "scoring_func", "seq_aux", "ep_size")
    reader.expect("output_router_logits", False)
    reader.expect("router_jitter_noise", 0, 0.0)


def expert_count(reader: Reader, key: str = "num_experts") -> int:
    """Routed experts of a layer, under any of the names that files use; `key` is the family's own."""
    found = reader.same("num_experts", "num_local_experts", "n_routed_experts")
    return reader.size(key) if found is None else found


def active_count(reader: Reader) -> int:
    """Experts that a token uses."""
    if reader.same("num_experts_per_tok", "experts_per_token") is None:
        return reader.size("num_experts_per_tok")
    return reader.same("num_experts_per_tok", "experts_per_token")


def others(layers: int, routed: Iterable[int]) -> tuple[int, ...]:
    """Layers that are not among some."""
    found = set(routed)
    return tuple(layer for layer in range(layers) if layer not in found)


def read_mixtral(reader: Reader) -> dict[str, Any]:
    """Mixtral: experts in every layer, each as wide as `intermediate_size`; no window unless given."""
    routing(reader)
    values = common(reader, epsilon=1e-5, theta=1_000_000.0)
    experts = expert_count(reader, "num_local_experts")
    moe = Moe(experts=experts, active=active_count(reader), ffn=values["ffn"])
    return {**values, "head_dim": head_dim(reader), "window": reader.get("sliding_window"), "moe": moe}


def read_olmoe(reader: Reader) -> dict[str, Any]:
    """OLMoE: experts in every layer, each as wide as `intermediate_size`; norms over all queries and keys."""
    routing(reader)
    reader.expect("clip_qkv", None)
    values = {**common(reader, epsilon=1e-5), **biases(reader), "qk_norm": "full"}
    moe = Moe(experts=expert_count(reader), active=active_count(reader), ffn=values["ffn"])
    return {**values, "head_dim": head_dim(reader), "moe": moe}


def qwen_experts(reader: Reader, **more: Any) -> Moe | None:
    """Experts of Qwen: in each `decoder_sparse_step`-th layer that `mlp_only_layers` does not name.

    A file with `num_experts` 0 is of a dense model.
    """
    routing(reader)
    experts = expert_count(reader)
    if experts == 0:
        reader.without_part("num_experts_per_tok", "moe_intermediate_size")
        reader.without_part("decoder_sparse_step", "mlp_only_layers")
        return None
    return Moe(
        experts=experts,
        active=active_count(reader),
        ffn=reader.size("moe_intermediate_size"),
        every=reader.size("decoder_sparse_step", 1),
        dense_layers=tuple(reader.get("mlp_only_layers", ())),
        **more,
    )


def read_qwen2_moe(reader: Reader) -> dict[str, Any]:
    """Qwen 1.5 and 2 MoE: a shared expert behind a gate; queries, keys and values have a bias unless told."""
    moe = qwen_experts(reader, shared_ffn=reader.size("shared_expert_intermediate_size"), shared_gate=True)
    layers, used = reader.size("num_hidden_layers"), reader.get("use_sliding_window", False)
    window, first = reader.given("sliding_window", 4096), reader.get("max_window_layers", 28)
    limited = used and window is not None
    kinds = [SLIDING if limited and layer < first and not layer % 2 else FULL for layer in range(layers)]
    return {
        **common(reader),
        **windows(reader, window if limited else None, kinds),
        "head_dim": head_dim(reader),
        "qkv_bias": reader.get("qkv_bias", True),
        "moe": moe,
    }


def read_qwen3_moe(reader: Reader) -> dict[str, Any]:
    """Qwen 3 MoE: norms on queries and keys; a window, if there is one, is in every layer."""
    window = reader.given("sliding_window", 4096) if reader.get("use_sliding_window", False) else None
    reader.without_part("sliding_window", "max_window_layers")
    reader.expect("layer_types", None, every_layer(reader, SLIDING if window else FULL))
    return {
        **common(reader),
        **biases(reader),
        "head_dim": head_dim(reader),
        "qk_norm": True,
        "window": window,
        "moe": qwen_experts(reader),
    }


def read_gpt_oss(reader: Reader) -> dict[str, Any]:
    """gpt-oss: biases everywhere, a sink for each query head, a window in every other layer."""
    routing(reader)
    reader.without_part("swiglu_limit", "swiglu_alpha", "initial_context_length")
    reader.defaults = {"max_position_embeddings": 131_072, "num_key_value_heads": 8}
    values = common(reader, epsilon=1e-5, theta=150_000.0)
    window = reader.given("sliding_window", 128)
    kinds = [FULL if layer % 2 or window is None else SLIDING for layer in range(values["layers"])]
    moe = Moe(
        experts=expert_count(reader, "num_local_experts"),
        active=active_count(reader),
        ffn=values["ffn"],
        router_bias=True,
        expert_bias=True,
    )
    return {
        **values,
        **biases(reader, True),
        **windows(reader, window, kinds),
        "head_dim": reader.size("head_dim", 64),
        "sinks": True,
        "moe": moe,
    }


def read_llama4(reader: Reader) -> dict[str, Any]:
    """Llama 4: one shared expert beside the routed ones, dense layers of a width of their own, chunks.

    Norms on queries and keys (`use_qk_norm`) have no weights. Layers without rotary positions attend to all
    tokens, the others to their chunk of `attention_chunk_size`.
    """
    routing(reader)
    reader.without_part(
        "use_qk_norm", "attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor"
    )
    reader.defaults = {
        "max_position_embeddings": 131_072,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
    }
    values = common(reader, epsilon=1e-5, theta=500_000.0)
    expert = values["ffn"]
    return {
        **values,
        **biases(reader),
        **llama4_chunks(reader, values["layers"]),
        "head_dim": reader.size("head_dim", 128),
        "ffn": reader.size("intermediate_size_mlp", 16_384),
        "moe": llama4_experts(reader, values["layers"], expert),
    }


def llama4_chunks(reader: Reader, layers: int) -> dict[str, Any]:
    """Layers of Llama 4 that attend to their chunk: those with rotary positions (1 in `no_rope_layers`)."""
    period = reader.size("no_rope_layer_interval", 4)
    rotary = reader.get("no_rope_layers") or [layer % period for layer in range(1, layers + 1)]
    chunk = reader.given("attention_chunk_size", 8192)
    kinds = ["chunked_attention" if yes and chunk is not None else FULL for yes in rotary]
    return windows(reader, chunk, kinds)


def llama4_experts(reader: Reader, layers: int, width: int) -> Moe | None:
    """Experts of Llama 4: in the layers of `moe_layers`, or in each `interleave_moe_layer_step`-th one."""
    step, named = reader.size("interleave_moe_layer_step", 1), reader.get("moe_layers")
    implied = list(range(step - 1, layers, step))
    if named is not None and "interleave_moe_layer_step" in reader.values and list(named) != implied:
        reader.refuse(f"interleave_moe_layer_step={step}", "moe_layers says otherwise; leave one out")
    routed = implied if named is None else named
    if not routed:
        reader.without_part("num_local_experts", "num_experts_per_tok")
        return None
    regular = list(routed) == implied
    return Moe(
        experts=expert_count(reader, "num_local_experts"),
        active=active_count(reader),
        ffn=width,
        shared_ffn=width,
        every=step if regular else 1,
        dense_layers=() if regular else others(layers, routed),
    )

"""Hugging Face models of the kinds that a `spec.Model` describes, where transformers is installed."""

from typing import Any

from torch import nn

from playbook.frameworks.unfused_experts import known_experts
from playbook.runtime.twin_routing import take_turns
from playbook.spec import Model, Moe

BY_GROUPS = {"experts_implementation": "grouped_mm"}
"""How experts compute: tokens sorted by expert, grouped products. It is transformers' own choice on CUDA."""


def hugging_face(model: Model) -> nn.Module:
    """Make transformers' own code for a model, with no weights loaded.

    Raises
    ------
    ValueError
        If transformers is not installed or its code for this kind of model is not known here.
    """
    try:
        import transformers  # pyright: ignore[reportMissingImports]  # an extra of the user's
    except ImportError:
        raise ValueError(
            "framework='transformers' needs the package transformers, which is not installed; pip install "
            "transformers, or use framework='torch'"
        ) from None
    kind, more = kind_of(model)
    config: Any = getattr(transformers, f"{kind}Config")(**{**fields_of(model), **more})
    module = transformers.AutoModelForCausalLM.from_config(config)
    if model.moe is not None:
        take_turns(module)
    return module


def fields_of(model: Model) -> dict[str, Any]:
    """Fields that the configurations of all kinds have."""
    return {
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "intermediate_size": model.ffn,
        "vocab_size": model.vocabulary,
        "rms_norm_eps": model.norm_epsilon,
        "tie_word_embeddings": model.tied,
        "use_cache": False,
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "attn_implementation": "sdpa",
    }


def kind_of(model: Model) -> tuple[str, dict[str, Any]]:
    """Whose code computes a model, by what it has, and the fields that only this code knows.

    Raises
    ------
    ValueError
        If no kind has all of it.
    """
    wrong = [name for name in model.unlike_llama if not (name == "routed experts" and known_experts(model))]
    if model.qkv_bias and model.qk_norm:
        wrong.append("biases beside norms over heads")
    if model.chunked or model.full_layers:
        wrong.append("windows in some layers or chunks")
    if wrong:
        raise ValueError(
            f"model {model.name!r} has {', '.join(wrong)}: not of a Hugging Face kind that the twin builds; "
            "use a dense Llama, Mistral or Qwen kind, a Mixtral or a Qwen3-MoE"
        )
    if model.moe is not None:
        return mixture(model, model.moe)
    if model.qk_norm:
        return "Qwen3", {"attention_bias": False}
    if model.qkv_bias and not model.output_bias:
        return "Qwen2", {}
    if model.window:
        return "Mistral", {"sliding_window": model.window}
    return "Llama", {"attention_bias": model.output_bias, "mlp_bias": model.mlp_bias}


def mixture(model: Model, moe: Moe) -> tuple[str, dict[str, Any]]:
    """Whose code computes a model of routed experts, and the fields that only this code knows."""
    common = {"num_experts_per_tok": moe.active, "sliding_window": model.window, **BY_GROUPS}
    if model.family == "mixtral":
        return "Mixtral", {**common, "num_local_experts": moe.experts, "intermediate_size": moe.ffn}
    dense = [layer for layer in range(model.layers) if not moe.in_layer(layer)]
    return "Qwen3Moe", {
        **common,
        "num_experts": moe.experts,
        "moe_intermediate_size": moe.ffn,
        "norm_topk_prob": True,
        "mlp_only_layers": dense,
        "attention_bias": model.qkv_bias,
        "use_sliding_window": model.window is not None,
    }

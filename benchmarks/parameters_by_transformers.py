"""Count parameters with Hugging Face's own classes on the meta device, for configurations of many keys.

    python benchmarks/parameters_by_transformers.py tests/data/parameters_by_transformers.json

The counts are a second opinion on `playbook.spec`: the tests read the file, so that they need no
transformers. The configurations are small and made up; what varies is which keys they have. Not every count
of transformers is kept: `LEFT_OUT` names what its classes do otherwise, and why.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BASE = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "pad_token_id": 0,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 32, "vocab_size": 100}
MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LOCAL = {"num_local_experts": 6, "num_experts_per_tok": 2}
DEEPSEEK = {
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "q_lora_rank": 20,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "n_group": 1,
    "topk_group": 1,
}
TIED, BIASED, NONE = {"tie_word_embeddings": True}, {"attention_bias": True}, {"num_experts": 0}
WINDOWED = ["sliding_attention", "full_attention"] * 2
VARIED: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "llama": (BASE, ({}, TIED, BIASED, {"mlp_bias": True}, {"head_dim": 24}, {"num_key_value_heads": 1})),
    "qwen2": (
        BASE,
        (
            {},
            {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
            {"sliding_window": 16, "use_sliding_window": True, "layer_types": WINDOWED},
        ),
    ),
    "qwen3": (BASE, ({}, BIASED, {"head_dim": 24})),
    "mistral": (BASE, ({}, {"head_dim": 24, "sliding_window": 16})),
    "ministral": (BASE | {"head_dim": 16}, ({}, {"layer_types": WINDOWED, "sliding_window": 16})),
    "smollm3": (BASE, ({}, TIED | BIASED, {"no_rope_layer_interval": 2, "mlp_bias": True})),
    "phi3": (BASE, ({}, TIED, {"sliding_window": 16})),
    "gemma": (BASE, ({"head_dim": 24}, TIED | {"head_dim": 16})),
    "gemma2": (
        BASE,
        (TIED | {"head_dim": 24}, {"head_dim": 16, "attention_bias": True, "num_hidden_layers": 3}),
    ),
    "gemma3_text": (
        BASE,
        (TIED | {"head_dim": 24}, {"head_dim": 16, "sliding_window": 16, "sliding_window_pattern": 2}),
    ),
    "olmo2": (BASE, ({}, BIASED, {"num_key_value_heads": 4})),
    "olmo3": (BASE, ({}, TIED | {"layer_types": WINDOWED, "sliding_window": 16})),
    "gpt2": (GPT2, ({}, {"n_inner": 100}, {"tie_word_embeddings": False})),
    "mixtral": (BASE | LOCAL, ({}, TIED, {"head_dim": 24, "sliding_window": 16})),
    "olmoe": (BASE | {"num_experts": 6, "num_experts_per_tok": 2}, ({}, BIASED, {"num_key_value_heads": 4})),
    "qwen2_moe": (
        BASE | MOE | {"shared_expert_intermediate_size": 40},
        (
            {},
            {"qkv_bias": False},
            {"decoder_sparse_step": 2},
            {"mlp_only_layers": [0, 3]},
            {"decoder_sparse_step": 2, "mlp_only_layers": [1], "tie_word_embeddings": True},
            {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 3},
        ),
    ),
    "qwen3_moe": (
        BASE | MOE | {"head_dim": 24},
        (
            {},
            BIASED,
            {"decoder_sparse_step": 3},
            {"mlp_only_layers": [2]},
            {"use_sliding_window": True},
            NONE,
        ),
    ),
    "gpt_oss": (
        BASE | LOCAL | {"head_dim": 24},
        ({}, {"attention_bias": False}, {"layer_types": WINDOWED[::-1], "sliding_window": 16}),
    ),
    "llama4_text": (
        BASE | LOCAL | {"head_dim": 16, "intermediate_size_mlp": 80, "attention_chunk_size": 32},
        (
            {},
            {"interleave_moe_layer_step": 2},
            {"moe_layers": [0, 3]},
            {"moe_layers": [], "attention_bias": True},
            {"no_rope_layers": [1, 0, 1, 1], "use_qk_norm": False, "num_hidden_layers": 4},
            {"no_rope_layer_interval": 2, "tie_word_embeddings": True},
        ),
    ),
    "deepseek_v2": (
        BASE | DEEPSEEK,
        (
            {},
            {"q_lora_rank": None},
            BIASED,
            {"mlp_bias": True},
            {"n_shared_experts": 3, "first_k_dense_replace": 0},
            {"first_k_dense_replace": 4},
        ),
    ),
    "deepseek_v3": (
        BASE | DEEPSEEK,
        (
            {},
            {"q_lora_rank": None, "first_k_dense_replace": 3},
            BIASED,
            TIED | {"n_shared_experts": 2},
            {"v_head_dim": 12, "qk_rope_head_dim": 4},
        ),
    ),
}
WITHOUT_DEFAULTS = ("ministral",)
"""Families whose configuration class builds no model by itself: it has no head_dim."""

LEFT_OUT = (
    "moe_layer_freq of DeepSeek: transformers has every layer from first_k_dense_replace on routed, "
    "DeepSeek's own modelling file only those whose number it divides"
)


def configurations() -> Iterator[dict[str, Any]]:
    """Yield every varied configuration, then each family's own defaults with every key written out."""
    from transformers import AutoConfig  # pyright: ignore[reportMissingImports]

    for kind, (base, changes) in VARIED.items():
        for change in changes:
            yield {"model_type": kind, **base, **change}
    for kind in VARIED:
        if kind not in WITHOUT_DEFAULTS:
            given = {"num_experts_per_tok": 6} if kind == "deepseek_v2" else {}
            yield AutoConfig.for_model(kind, **given).to_dict()


def count(config: dict[str, Any]) -> dict[str, Any]:
    """Build a configuration's model on the meta device and count its tensors."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM  # pyright: ignore[reportMissingImports]

    found = AutoConfig.for_model(**config)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(found)
    layers = model.transformer.h if config["model_type"] == "gpt2" else model.model.layers
    routed = [p.numel() for name, p in model.named_parameters() if ".experts." in name]
    kinds = getattr(found, "layer_types", None)
    return {
        "config": config,
        "total": sum(parameter.numel() for parameter in model.parameters()),
        "per_layer": [sum(p.numel() for p in layer.parameters()) for layer in layers],
        "routed_experts": sum(routed),
        "layer_types": kinds and [str(kind) for kind in kinds],
    }


def main(path: str) -> None:
    """Write the counts of all configurations to a file."""
    import torch
    import transformers  # pyright: ignore[reportMissingImports]

    rows = [count(config) for config in configurations()]
    source = f"built on the meta device: torch {torch.__version__}; transformers {transformers.__version__}"
    content = json.dumps({"source": source, "left out": LEFT_OUT, "rows": []}, indent=1)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    Path(path).write_text(content.replace('"rows": []', f'"rows": [\n{lines}\n ]') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

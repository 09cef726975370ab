"""What the keys of dense families mean: Llama, Qwen, Mistral, Gemma, OLMo, Phi and GPT-2.

Meanings and defaults are those of the configuration and modelling classes of Hugging Face transformers 4 and
5: `LlamaConfig`, `Qwen2Config`, `Qwen3Config`, `MistralConfig`, `MinistralConfig`, `SmolLM3Config`,
`GemmaConfig`, `Gemma2Config`, `Gemma3TextConfig`, `Olmo2Config`, `Olmo3Config`, `Phi3Config`, `GPT2Config`.
"""

from typing import Any

from playbook.spec.config_reader import Reader, activation, common, head_dim, share, windows

SLIDING, FULL = "sliding_attention", "full_attention"


def biases(reader: Reader, default: bool = False) -> dict[str, Any]:
    """`attention_bias` is for all four projections of attention."""
    biased = reader.get("attention_bias", default)
    return {"qkv_bias": biased, "output_bias": biased}


def every_layer(reader: Reader, kind: str = SLIDING) -> list[str]:
    """One kind of attention in every layer."""
    return [kind] * reader.size("num_hidden_layers")


def read_llama(reader: Reader) -> dict[str, Any]:
    """Llama: `attention_bias` is for all four projections of attention, `mlp_bias` for the three others."""
    return {
        **common(reader),
        **biases(reader),
        "head_dim": head_dim(reader),
        "mlp_bias": reader.get("mlp_bias", False),
    }


def read_smollm3(reader: Reader) -> dict[str, Any]:
    """SmolLM 3: a Llama, tied unless told, of which some layers have no positions (no size depends on it)."""
    reader.without_part("no_rope_layers", "no_rope_layer_interval")
    if reader.get("use_sliding_window", False):
        reader.refuse("use_sliding_window=True", "windows of this family are not read; use False")
    reader.without_part("sliding_window", "max_window_layers")
    return {
        **read_llama(reader),
        **windows(reader, None, every_layer(reader, FULL)),
        "kv_heads": reader.size("num_key_value_heads", 4),
        "tied": reader.get("tie_word_embeddings", True),
    }


def read_qwen2(reader: Reader) -> dict[str, Any]:
    """Qwen 2: queries, keys and values always have a bias, the output never."""
    return {**common(reader), "head_dim": head_dim(reader), "qkv_bias": True, **qwen_windows(reader)}


def read_qwen3(reader: Reader) -> dict[str, Any]:
    """Qwen 3: norms on queries and keys; the head dim is 128 unless given."""
    values = {**common(reader), **biases(reader), "qk_norm": True}
    return {**values, "head_dim": reader.get("head_dim", 128), **qwen_windows(reader)}


def qwen_windows(reader: Reader) -> dict[str, Any]:
    """Windows of Qwen: the layers from `max_window_layers` on have one, if `use_sliding_window`."""
    window, first = reader.given("sliding_window", 4096), reader.get("max_window_layers", 28)
    layers = reader.size("num_hidden_layers")
    if not reader.get("use_sliding_window", False):
        return windows(reader, None, every_layer(reader, FULL))
    kinds = [SLIDING if window is not None and layer >= first else FULL for layer in range(layers)]
    return windows(reader, window, kinds)


def read_mistral(reader: Reader) -> dict[str, Any]:
    """Mistral: no biases; every layer has the window, which is 4 096 tokens where the key is left out."""
    window = reader.given("sliding_window", 4096)
    return {**common(reader), "head_dim": head_dim(reader), "window": window}


def read_ministral(reader: Reader) -> dict[str, Any]:
    """Ministral: a Mistral whose windows may be some layers' only."""
    window = reader.given("sliding_window", 4096)
    kinds = every_layer(reader, SLIDING if window is not None else FULL)
    return {**common(reader), "head_dim": head_dim(reader), **windows(reader, window, kinds)}


def read_phi3(reader: Reader) -> dict[str, Any]:
    """Phi 3: a Mistral with fused projections (they are counted one by one); no window unless given."""
    reader.without_part("original_max_position_embeddings")
    for key in ("resid_pdrop", "embd_pdrop"):
        reader.expect(key, 0, 0.0)
    reader.expect("attention_bias", False)
    reader.expect("partial_rotary_factor", 1, 1.0)
    window = reader.get("sliding_window")
    return {**common(reader, epsilon=1e-5), "head_dim": head_dim(reader), "window": window}


def read_gemma(reader: Reader) -> dict[str, Any]:
    """Gemma: GELU, heads of 256 features and a tied head unless told."""
    reader.expect("use_bidirectional_attention", None, False)
    reader.expect("hidden_activation", None)
    name = "hidden_activation" if reader.values.get("hidden_activation") else "hidden_act"
    found = activation(reader, name, "gelu_pytorch_tanh")
    return {
        **common(reader),
        **biases(reader),
        "head_dim": reader.size("head_dim", 256),
        "tied": reader.get("tie_word_embeddings", True),
        "activation": "silu" if found == "silu" else "gelu",
    }


def read_gemma2(reader: Reader) -> dict[str, Any]:
    """Gemma 2: four norms a layer, and a window in every other layer from the first on."""
    return {**read_gemma(reader), "sandwich": True, **gemma_windows(reader, 2)}


def gemma_windows(reader: Reader, period: int) -> dict[str, Any]:
    """Windows of Gemma: all layers but each `period`-th, which attends to everything."""
    reader.without_part("query_pre_attn_scalar")
    reader.expect("attn_logit_softcapping", None)
    reader.expect("final_logit_softcapping", None)
    layers = range(1, reader.size("num_hidden_layers") + 1)
    given = reader.same("sliding_window_pattern", "_sliding_window_pattern", default=period)
    window = gemma_window(reader)
    kinds = [SLIDING if layer % given and window is not None else FULL for layer in layers]
    named = reader.get("layer_types")
    if reader.get("sliding_window_pattern") and named is not None and list(named) != kinds:
        reader.refuse(f"sliding_window_pattern={given}", "layer_types says otherwise; leave one out")
    return windows(reader, window, kinds)


def gemma_window(reader: Reader) -> int | None:
    """Tokens of Gemma's window, under either of its names: 4 096 where the file has none of them."""
    names = ("sliding_window", "sliding_window_size")
    default = None if any(name in reader.values for name in names) else 4096
    return reader.same(*names, default=default)


GEMMA_3 = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 262_208,
    "max_position_embeddings": 131_072,
}


def read_gemma3(reader: Reader) -> dict[str, Any]:
    """Gemma 3: norms on queries and keys, a window in five of six layers; its files leave out much."""
    reader.defaults = GEMMA_3
    reader.without_part("rope_local_base_freq")
    values = {**read_gemma(reader), "sandwich": True, "qk_norm": True}
    return {**values, **gemma_windows(reader, 6)}


def read_olmo2(reader: Reader) -> dict[str, Any]:
    """OLMo 2: norms behind attention and feed-forward only, and over all queries and all keys."""
    return {
        **common(reader, epsilon=1e-5),
        **biases(reader),
        "head_dim": head_dim(reader),
        "post_norm": True,
        "qk_norm": "full",
    }


def read_olmo3(reader: Reader) -> dict[str, Any]:
    """OLMo 3: an OLMo 2 with a window of 4 096 tokens in three of four layers."""
    window, layers = reader.given("sliding_window", 4096), range(1, reader.size("num_hidden_layers") + 1)
    kinds = [SLIDING if layer % 4 and window is not None else FULL for layer in layers]
    return {**read_olmo2(reader), **windows(reader, window, kinds)}


def read_gpt2(reader: Reader) -> dict[str, Any]:
    """GPT-2: learned positions, LayerNorm, biases everywhere, a feed-forward part of four times the width."""
    hidden, heads = reader.size("n_embd"), reader.size("n_head")
    positions = reader.size("n_positions")
    reader.expect("activation_function", "gelu_new", "gelu", "gelu_pytorch_tanh")
    for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        reader.expect(key, 0, 0.0)
    reader.expect("add_cross_attention", False)
    reader.expect("scale_attn_weights", True)
    reader.expect("scale_attn_by_inverse_layer_idx", False)
    reader.expect("reorder_and_upcast_attn", False)
    return {
        "layers": reader.size("n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": share(reader.name, hidden, heads),
        "ffn": reader.get("n_inner", 4 * hidden),
        "vocabulary": reader.size("vocab_size"),
        "max_sequence": positions,
        "positions": positions,
        "tied": reader.get("tie_word_embeddings", True),
        "gated": False,
        "activation": "gelu",
        "norm": "layer",
        "norm_epsilon": reader.get("layer_norm_epsilon", 1e-5),
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
    }

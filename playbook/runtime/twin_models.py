"""Hugging Face models of the kinds that a `spec.Model` describes, where transformers is installed."""

from typing import Any

from torch import nn

from playbook.spec import Model


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
    config: Any = getattr(transformers, f"{kind}Config")(
        hidden_size=model.hidden,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        head_dim=model.head_dim,
        intermediate_size=model.ffn,
        vocab_size=model.vocabulary,
        rms_norm_eps=model.norm_epsilon,
        tie_word_embeddings=model.tied,
        use_cache=False,
        pad_token_id=None,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation="sdpa",
        **more,
    )
    return transformers.AutoModelForCausalLM.from_config(config)


def kind_of(model: Model) -> tuple[str, dict[str, Any]]:
    """Whose code computes a model, by what it has, and the fields that only this code knows.

    Raises
    ------
    ValueError
        If no kind has all of it.
    """
    wrong = list(model.unlike_llama)
    if model.qkv_bias and model.qk_norm:
        wrong.append("biases beside norms over heads")
    if model.chunked or model.full_layers:
        wrong.append("windows in some layers or chunks")
    if wrong:
        raise ValueError(
            f"model {model.name!r} has {', '.join(wrong)}: not of a Hugging Face kind that the twin builds; "
            "use a dense Llama, Mistral or Qwen kind"
        )
    if model.qk_norm:
        return "Qwen3", {"attention_bias": False}
    if model.qkv_bias and not model.output_bias:
        return "Qwen2", {}
    if model.window:
        return "Mistral", {"sliding_window": model.window}
    return "Llama", {"attention_bias": model.output_bias, "mlp_bias": model.mlp_bias}

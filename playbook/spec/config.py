"""Read a Hugging Face `config.json`: what its keys mean, for the kinds of model that are read.

Meanings and defaults are those of the configuration classes of Hugging Face transformers 4 and 5
(`LlamaConfig`, `Qwen2Config`, `Qwen3Config`, `MistralConfig`, `GPT2Config`).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from playbook.spec.rules import whole

# Keys that say nothing about sizes, bytes or arithmetic of training: tokens, generation, bookkeeping.
BOOKKEEPING = frozenset(
    (
        *("architectures", "auto_map", "model_type", "name", "_name_or_path", "transformers_version"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"),
        *("torch_dtype", "dtype", "use_cache", "initializer_range", "pretraining_tp", "n_ctx", "return_dict"),
        *("output_attentions", "output_hidden_states", "is_encoder_decoder", "chunk_size_feed_forward"),
        *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels"),
        *("summary_first_dropout", "task_specific_params", "tokenizer_class", "gradient_checkpointing"),
        *("id2label", "label2id", "problem_type", "finetuning_task", "prefix"),
    )
)
WANTED = "give a Hugging Face config.json"


class Reader:
    """Hands out a configuration's keys and remembers which were read."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self.values, self.name = values, name
        self.read: set[str] = set()

    def need(self, key: str) -> Any:
        """Return a key's value; a file without it is refused by name."""
        if self.values.get(key) is None:
            kind = self.values.get("model_type")
            raise ValueError(f"{self.name}: key {key!r} is missing; a {kind} config.json must have it")
        return self.get(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value; absent or null, the default."""
        self.read.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def size(self, key: str) -> int:
        """Return a key's value, which must be there and be a whole number of at least 1."""
        return whole(f"{self.name}: {key}", self.need(key))

    def has(self, key: str) -> bool:
        """Tell whether the file has the key, null included."""
        return key in self.values

    def expect(self, key: str, *expected: Any) -> None:
        """Count a key as understood only if its value is one of those expected."""
        if self.values.get(key) in expected:
            self.read.add(key)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Keys that were neither read nor known as bookkeeping."""
        return tuple(sorted(set(self.values) - self.read - BOOKKEEPING))


def read_config(config: Mapping[str, Any] | str | Path, name: str | None = None) -> dict[str, Any]:
    """Turn a configuration into the fields of a `Model`.

    Parameters
    ----------
    config
        The dict of a `config.json`, the file's path, or the folder that holds it.
    name
        What to call the model; by default the file's own name for it, or its folder.

    Raises
    ------
    ValueError
        If the file cannot be read, is not JSON, lacks a key, or is of a kind that is not read.
    """
    source = "given as a dict"
    if not isinstance(config, Mapping):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        config, source = load_json(path), str(path)
        name = name or (path.stem if path.stem != "config" else path.resolve().parent.name)
    name = name or str(
        config.get("_name_or_path") or config.get("name") or config.get("model_type") or "model"
    )
    kind = config.get("model_type")
    if kind is None:
        raise ValueError(f"{name}: key 'model_type' is missing; read are {', '.join(KINDS)}")
    if kind not in KINDS:
        raise ValueError(f"{name}: model_type={kind!r} is not read yet; read are {', '.join(KINDS)}")
    reader = Reader(config, name)
    values = KINDS[kind](reader)
    return {"name": name, "family": kind, **values, "ignored_keys": reader.ignored, "source": source}


def load_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file, or say in one line why not."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({error.strerror}); give a Hugging Face config.json"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: is not JSON ({error}); {WANTED}") from None
    if not isinstance(content, dict):
        raise ValueError(
            f"{path}: holds a {type(content).__name__}, not an object; give a Hugging Face config.json"
        )
    return content


def read_llama_like(reader: Reader) -> dict[str, Any]:
    """Sizes that Llama, Qwen 2 and 3, and Mistral write with the same keys."""
    hidden, heads = reader.size("hidden_size"), reader.size("num_attention_heads")
    reader.expect("hidden_act", "silu", "swish")
    reader.expect("attention_dropout", 0, 0.0)
    rope = reader.values.get("rope_parameters")
    theta = reader.get("rope_theta", 10_000.0)
    if isinstance(rope, Mapping) and rope.get("rope_type", "default") == "default":
        theta = reader.get("rope_parameters").get("rope_theta", theta)
    reader.expect("rope_scaling", None)
    return {
        "layers": reader.size("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": reader.get("num_key_value_heads", heads),
        "head_dim": reader.get("head_dim") or share(reader.name, hidden, heads),
        "ffn": reader.size("intermediate_size"),
        "vocabulary": reader.size("vocab_size"),
        "tied": reader.get("tie_word_embeddings", False),
        "max_sequence": reader.size("max_position_embeddings"),
        "norm_epsilon": reader.get("rms_norm_eps", 1e-6),
        "rope_theta": theta,
    }


def share(name: str, hidden: int, heads: int) -> int:
    """Head dim where the file leaves it out: the features divided among the heads."""
    if hidden % heads:
        raise ValueError(
            f"{name}: hidden_size={hidden} is not a multiple of num_attention_heads={heads} "
            "and there is no head_dim; add head_dim"
        )
    return hidden // heads


def read_llama(reader: Reader) -> dict[str, Any]:
    """Llama: `attention_bias` is for all four projections of attention, `mlp_bias` for the three others."""
    biased = reader.get("attention_bias", False)
    return {
        **read_llama_like(reader),
        "qkv_bias": biased,
        "output_bias": biased,
        "mlp_bias": reader.get("mlp_bias", False),
    }


def read_qwen2(reader: Reader) -> dict[str, Any]:
    """Qwen 2: queries, keys and values always have a bias, the output never."""
    return {**read_llama_like(reader), "qkv_bias": True, "window": qwen_window(reader)}


def read_qwen3(reader: Reader) -> dict[str, Any]:
    """Qwen 3: norms on queries and keys; the head dim is 128 unless given."""
    biased = reader.get("attention_bias", False)
    values = {**read_llama_like(reader), "qkv_bias": biased, "output_bias": biased, "qk_norm": True}
    return {**values, "head_dim": reader.get("head_dim", 128), "window": qwen_window(reader)}


def qwen_window(reader: Reader) -> int | None:
    """Window of Qwen: the layers from `max_window_layers` on have one, if `use_sliding_window`."""
    window, first = reader.get("sliding_window"), reader.get("max_window_layers", 28)
    layers = reader.size("num_hidden_layers")
    if not reader.get("use_sliding_window", False):
        reader.expect("layer_types", None, ["full_attention"] * layers)
        return None
    if 0 < first < layers:
        raise ValueError(
            f"{reader.name}: max_window_layers={first} gives some of {layers} layers a window, "
            "which is not read yet; use_sliding_window=false would be read"
        )
    return window if first <= 0 else None


def read_mistral(reader: Reader) -> dict[str, Any]:
    """Mistral: no biases; every layer has the window, which is 4 096 tokens where the key is left out."""
    window = reader.get("sliding_window") if reader.has("sliding_window") else 4096
    return {**read_llama_like(reader), "window": window}


def read_gpt2(reader: Reader) -> dict[str, Any]:
    """GPT-2: learned positions, LayerNorm, biases everywhere, a feed-forward part of four times the width."""
    hidden, heads = reader.size("n_embd"), reader.size("n_head")
    positions = reader.size("n_positions")
    reader.expect("activation_function", "gelu_new")
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
        "norm": "layer",
        "norm_epsilon": reader.get("layer_norm_epsilon", 1e-5),
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
    }


KINDS: dict[str, Callable[[Reader], dict[str, Any]]] = {
    "llama": read_llama,
    "qwen2": read_qwen2,
    "qwen3": read_qwen3,
    "mistral": read_mistral,
    "gpt2": read_gpt2,
}

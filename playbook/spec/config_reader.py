"""Hands out a configuration's keys, remembers which were read, and refuses values that contradict."""

from collections.abc import Mapping, Sequence
from typing import Any

from playbook.spec.rules import whole

# Keys that say nothing about sizes, bytes or arithmetic of training: tokens, generation, bookkeeping.
BOOKKEEPING = frozenset(
    (
        *("architectures", "auto_map", "model_type", "name", "_name_or_path", "transformers_version"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "mask_token_id"),
        "decoder_start_token_id",
        *("torch_dtype", "dtype", "use_cache", "initializer_range", "pretraining_tp", "n_ctx", "return_dict"),
        *("output_attentions", "output_hidden_states", "is_encoder_decoder", "chunk_size_feed_forward"),
        *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels"),
        *("summary_first_dropout", "task_specific_params", "tokenizer_class", "gradient_checkpointing"),
        *("id2label", "label2id", "problem_type", "finetuning_task", "prefix", "cache_implementation"),
        *("image_token_index", "boi_token_index", "eoi_token_index"),
    )
)
ATTENTION_KINDS = ("full_attention", "sliding_attention", "chunked_attention")
GELU = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast")


class Reader:
    """Hands out a configuration's keys and remembers which were read."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self.values, self.name = values, name
        self.read: set[str] = set()
        self.expected: set[str] = set()
        """Keys of which some values only are understood."""
        self.defaults: Mapping[str, Any] = {}
        """What the family's files may leave out."""

    def need(self, key: str) -> Any:
        """Return a key's value; a file without it is refused by name."""
        if self.values.get(key) is None and key not in self.defaults:
            kind = self.values.get("model_type")
            raise ValueError(f"{self.name}: key {key!r} is missing; a {kind} config.json must have it")
        return self.get(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value; absent or null, the default."""
        self.read.add(key)
        value = self.values.get(key)
        if value is None:
            return self.defaults.get(key, default)
        return value

    def given(self, key: str, default: Any) -> Any:
        """Return a key's value; absent, the default; null is a value too, and means none."""
        self.read.add(key)
        return self.values.get(key, default)

    def size(self, key: str, default: int | None = None) -> int:
        """Return a key's value, a whole number of at least 1; without a default the file must have it."""
        value = self.need(key) if default is None else self.get(key, default)
        return whole(f"{self.name}: {key}", value)

    def same(self, *keys: str, default: Any = None) -> Any:
        """Return what keys of one meaning say; keys that say different things are refused."""
        given = {key: self.get(key) for key in keys if self.get(key) is not None}
        for key, value in given.items():
            first = next(iter(given))
            if value != given[first]:
                self.refuse(f"{key}={value!r}", f"{first}={given[first]!r} means the same; leave one out")
        return next(iter(given.values()), default)

    def expect(self, key: str, *expected: Any) -> None:
        """Count a key as understood only if its value is one of those expected."""
        self.expected.add(key)
        if self.values.get(key) in expected:
            self.read.add(key)

    def without_part(self, *keys: str) -> None:
        """Count keys as understood that are known to have no part in any number, whatever they say."""
        self.read.update(keys)

    def refuse(self, value: str, rule: str) -> None:
        """Raise the error for a value that contradicts another."""
        raise ValueError(f"{self.name}: {value} but {rule}")

    @property
    def ignored(self) -> tuple[str, ...]:
        """Keys that were neither read nor known as bookkeeping."""
        return tuple(sorted(set(self.values) - self.read - BOOKKEEPING))


def common(reader: Reader, epsilon: float = 1e-6, theta: float = 10_000.0) -> dict[str, Any]:
    """Sizes that all families but GPT-2 write with the same keys.

    Parameters
    ----------
    reader
        The file.
    epsilon, theta
        What the family has where the file leaves out `rms_norm_eps` and `rope_theta`.
    """
    hidden, heads = reader.size("hidden_size"), reader.size("num_attention_heads")
    reader.expect("attention_dropout", 0, 0.0)
    reader.expect("rope_scaling", None)
    return {
        "layers": reader.size("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": reader.get("num_key_value_heads", heads),
        "ffn": reader.size("intermediate_size"),
        "vocabulary": reader.size("vocab_size"),
        "tied": reader.get("tie_word_embeddings", False),
        "max_sequence": reader.size("max_position_embeddings"),
        "activation": activation(reader, "hidden_act"),
        "norm_epsilon": reader.get("rms_norm_eps", epsilon),
        "rope_theta": rope_theta(reader, theta),
    }


def head_dim(reader: Reader) -> int:
    """Head dim as given, else the features divided among the heads."""
    given = reader.get("head_dim")
    if given:
        return given
    return share(reader.name, reader.size("hidden_size"), reader.size("num_attention_heads"))


def share(name: str, hidden: int, heads: int) -> int:
    """Head dim where the file leaves it out: the features divided among the heads."""
    if hidden % heads:
        raise ValueError(
            f"{name}: hidden_size={hidden} is not a multiple of num_attention_heads={heads} "
            "and there is no head_dim; add head_dim"
        )
    return hidden // heads


def activation(reader: Reader, key: str, default: str = "silu") -> str:
    """Read the feed-forward function; one that is no SiLU or GELU leaves the key among those ignored."""
    reader.expect(key, "silu", "swish", *GELU)
    value = reader.values.get(key) or default
    return "gelu" if value in GELU else "silu" if value in ("silu", "swish") else default


def rope_theta(reader: Reader, default: float) -> float:
    """Base of the rotary positions, from either place that files write it to."""
    theta, rope = reader.get("rope_theta", default), reader.values.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return theta
    kinds = [part for part in rope.values() if isinstance(part, Mapping)] or [rope]
    if all(part.get("rope_type", "default") == "default" for part in kinds):
        reader.get("rope_parameters")
        return rope.get("full_attention", kinds[0]).get("rope_theta", theta)
    return theta


def windows(reader: Reader, window: int | None, kinds: Sequence[str]) -> dict[str, Any]:
    """Which layers have a window, by `layer_types` where the file has it.

    Parameters
    ----------
    reader
        The file.
    window
        Tokens of the window; None is none.
    kinds
        What the family does where the file has no `layer_types`.

    Raises
    ------
    ValueError
        If `layer_types` has not one known kind for each layer, or asks for a window that is not given.
    """
    layers = reader.size("num_hidden_layers")
    given = reader.get("layer_types")
    found = list(kinds if given is None else given)
    if len(found) != layers:
        reader.refuse(
            f"layer_types has {len(found)} entries", f"num_hidden_layers={layers}; give one for each"
        )
    strange = sorted({str(kind) for kind in found} - set(ATTENTION_KINDS))
    if strange:
        reader.refuse(f"layer_types has {strange[0]!r}", f"read are {', '.join(ATTENTION_KINDS)}")
    limited = {kind for kind in found if kind != "full_attention"}
    if not limited:
        return {}
    if len(limited) > 1:
        reader.refuse(
            "layer_types has sliding and chunked layers", "one kind of window is read; use one of them"
        )
    if window is None:
        reader.refuse(f"layer_types has {limited.pop()!r}", "no window is given; add its tokens")
    full = tuple(number for number, kind in enumerate(found) if kind == "full_attention")
    return {"window": window, "full_layers": full, "chunked": limited == {"chunked_attention"}}

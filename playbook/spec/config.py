"""Read a Hugging Face `config.json`: what its keys mean, for the kinds of model that are read."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from playbook.spec import config_dense as dense
from playbook.spec import config_experts as experts
from playbook.spec import config_latent as latent
from playbook.spec import presets
from playbook.spec.config_reader import Reader
from playbook.spec.rules import near

WANTED = "give a Hugging Face config.json"
LONGEST = 60
"""Characters of a value that a note shows."""


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
    whole_file = config
    config, unread = text_part(config, name)
    kind = config.get("model_type")
    if kind is None:
        raise ValueError(f"{name}: key 'model_type' is missing; read are {', '.join(KINDS)}")
    if kind not in KINDS:
        raise ValueError(f"{name}: model_type={kind!r} is not read yet; read are {', '.join(KINDS)}")
    reader = Reader(config, name)
    values = KINDS[kind](reader)
    ignored = tuple(sorted({*reader.ignored, *unread}))
    said = tuple(shortened({**whole_file, **config}[key]) for key in ignored)
    found = {"ignored_keys": ignored, "ignored_values": said, "source": source}
    return {"name": name, "family": kind, **values, **found}


def shortened(value: object) -> str:
    """Write a value of a file, cut off where it is long."""
    words = repr(value)
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def text_part(config: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Take the text model out of the file of a model that also sees or hears; name the keys left aside."""
    text = config.get("text_config")
    if not isinstance(text, Mapping) or config.get("model_type") in KINDS:
        return config, ()
    outer = Reader(config, name)
    outer.read.add("text_config")
    if outer.get("tie_word_embeddings") is not None:
        tied = config["tie_word_embeddings"]
        if text.get("tie_word_embeddings", tied) != tied:
            outer.refuse(f"tie_word_embeddings={tied}", "text_config says otherwise; leave one out")
        text = {**text, "tie_word_embeddings": tied}
    return text, outer.ignored


def not_understood(kind: str, ignored: Sequence[str], values: Sequence[str] = ()) -> str:
    """Name the keys that have no part in any number: a known one with its value, which is what was not
    understood, another with the known key that it is most like."""
    if not ignored:
        return ""
    known, said = known_keys_of(kind), dict(zip(ignored, values, strict=False))
    words = []
    for key in ignored:
        question = near(key, known, 0.8).removeprefix("; ")
        if key in known:
            words.append(f"{key}={said[key]}" if key in said else key)
        else:
            words.append(f"{key} ({question})" if question else key)
    return f"not understood, and without a part in these numbers: {', '.join(words)}"


@cache
def known_keys_of(kind: str) -> tuple[str, ...]:
    """Return the keys that presets of a kind are read for; where there are none, those of all presets."""
    by_kind: dict[str, set[str]] = {}
    for name in presets.names("models"):
        config, _ = text_part(presets.load("models", name)["config"], name)
        reader = Reader(config, name)
        KINDS[config["model_type"]](reader)
        by_kind.setdefault(config["model_type"], set()).update(reader.read | reader.expected)
    return tuple(sorted(by_kind.get(kind) or set().union(*by_kind.values())))


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


KINDS: dict[str, Callable[[Reader], dict[str, Any]]] = {
    "llama": dense.read_llama,
    "qwen2": dense.read_qwen2,
    "qwen3": dense.read_qwen3,
    "mistral": dense.read_mistral,
    "gpt2": dense.read_gpt2,
    "ministral": dense.read_ministral,
    "smollm3": dense.read_smollm3,
    "phi3": dense.read_phi3,
    "gemma": dense.read_gemma,
    "gemma2": dense.read_gemma2,
    "gemma3_text": dense.read_gemma3,
    "olmo2": dense.read_olmo2,
    "olmo3": dense.read_olmo3,
    "mixtral": experts.read_mixtral,
    "olmoe": experts.read_olmoe,
    "qwen2_moe": experts.read_qwen2_moe,
    "qwen3_moe": experts.read_qwen3_moe,
    "gpt_oss": experts.read_gpt_oss,
    "llama4_text": experts.read_llama4,
    "deepseek_v2": latent.read_deepseek_v2,
    "deepseek_v3": latent.read_deepseek_v3,
    "kimi_k2": latent.read_deepseek_v3,
}

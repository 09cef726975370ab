"""Plain data to JSON and back: numbers, text, lists, tuples, dicts and NumPy arrays keep their type."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from playbook.runtime.payload import as_numpy, is_tensor

_MARK = "__plain__"


def encode(value: Any) -> Any:
    """JSON form of a value; what is not plain data becomes its `repr`.

    Examples
    --------
    >>> decode(encode({"a": (1, 2)}))
    {'a': (1, 2)}
    """
    if value is None or isinstance(value, (str, bool)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return _encode_mapping(value)
    if isinstance(value, np.generic):
        return value.item() if value.dtype.kind in "biuf" else _marked("repr", repr(value))
    return _encode_rest(value)


def decode(value: Any) -> Any:
    """Value of a JSON form that `encode` made."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: decode(item) for key, item in value.items()}
    return _decode_marked(value[_MARK], value["value"], value)


def _encode_mapping(value: Mapping[Any, Any]) -> Any:
    if all(isinstance(key, str) for key in value) and _MARK not in value:
        return {str(key): encode(item) for key, item in value.items()}
    return _marked("pairs", [[encode(key), encode(item)] for key, item in value.items()])


def _encode_rest(value: Any) -> Any:
    if isinstance(value, tuple):
        return _marked("tuple", [encode(item) for item in value])
    if isinstance(value, (set, frozenset)):
        return _marked("set", [encode(item) for item in value])
    if isinstance(value, bytes):
        return _marked("bytes", base64.b64encode(value).decode())
    if is_tensor(value):
        value = as_numpy(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return _marked("array", data, dtype=value.dtype.str, shape=list(value.shape))
    return _marked("repr", repr(value))


def _decode_marked(mark: str, content: Any, form: dict[str, Any]) -> Any:
    if mark == "array":
        flat = np.frombuffer(base64.b64decode(content), dtype=np.dtype(form["dtype"]))
        return flat.reshape(form["shape"]).copy()
    if mark == "bytes":
        return base64.b64decode(content)
    if mark == "repr":
        return content
    items = [decode(item) for item in content]
    if mark == "pairs":
        return dict(items)
    return tuple(items) if mark == "tuple" else set(items)


def _marked(mark: str, value: Any, **more: Any) -> dict[str, Any]:
    return {_MARK: mark, "value": value, **more}

"""What travels between kernel and ranks: functions by value, results as plain data.

cloudpickle carries functions that are defined in a notebook cell, a script or `python -c`. Where it is not
installed, functions of importable modules still travel, by reference.
"""

import linecache
import marshal
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from io import BytesIO
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from playbook.runtime.surroundings import is_users

try:
    import cloudpickle
except ImportError:  # clusters' images often lack it
    cloudpickle = None

_Pickler: Any = pickle.Pickler if cloudpickle is None else cloudpickle.Pickler
_registering = threading.Lock()


class _CallPickler(_Pickler):
    """Pickler of functions that keeps where their code was written, for tracebacks on the ranks."""

    def __init__(self, stream: BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.files: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Reduce code whole, since cloudpickle drops its file name; leave the rest to the base class."""
        if isinstance(obj, CodeType):
            self.files.add(obj.co_filename)
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj) if cloudpickle is not None else NotImplemented


class _ResultPickler(_Pickler):
    """Pickler that turns tensors, wherever they sit in a result, into NumPy arrays."""

    def reducer_override(self, obj: Any) -> Any:
        """Reduce a tensor as the array of its values; leave the rest to the base class."""
        if is_tensor(obj):
            return as_numpy(obj).__reduce__()
        return super().reducer_override(obj) if cloudpickle is not None else NotImplemented


def pack_call(function: Callable[..., Any], args: tuple[Any, ...], levers: Mapping[str, Any]) -> bytes:
    """Pickle a function and its arguments, with the source of notebook cells that it comes from.

    Raises
    ------
    TypeError
        If the function or an argument cannot travel to another process.
    """
    name = getattr(function, "__qualname__", repr(function))
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if cloudpickle is None and (module is None or module.__name__ == "__main__"):
        raise TypeError(
            f"{name} is defined in __main__ and cloudpickle is not installed here: install cloudpickle, or "
            "put the function into a module that can be imported"
        )
    try:
        call, files = _pack_by_value(module, (function, args, dict(levers)))
    except Exception as problem:  # whatever a user's __reduce__ raises
        raise TypeError(
            f"{name} cannot travel to the ranks: {problem}. Give it plain data and make sockets, locks, "
            "generators and open files inside the function"
        ) from problem
    sources = {file: linecache.getlines(file) for file in files if not Path(file).exists()}
    return pickle.dumps((call, sources))


def unpack_call(payload: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Function, arguments and levers that `pack_call` packed."""
    call, sources = pickle.loads(payload)
    for file, lines in sources.items():
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return pickle.loads(call)


def pack_result(value: Any) -> bytes:
    """Pickle what a rank returned; tensors become NumPy arrays.

    Raises
    ------
    TypeError
        If the value cannot travel as plain data.
    """
    stream = BytesIO()
    try:
        _ResultPickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as problem:  # whatever a user's __reduce__ raises
        raise TypeError(
            f"the returned {type(value).__name__} cannot travel back: {problem}. Return numbers, text, "
            "lists, dicts, NumPy arrays or tensors"
        ) from problem
    return stream.getvalue()


def unpack_result(payload: bytes) -> Any:
    """Value that `pack_result` packed."""
    return pickle.loads(payload)


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_numpy(tensor: Any) -> np.ndarray:
    """Values of a plain tensor on any device as a NumPy array; BF16 and FP8 become FP32.

    Raises
    ------
    TypeError
        If the tensor is distributed, fake, sparse or quantised, so that it has no plain values here.
    """
    kind = type(tensor).__name__
    if kind not in ("Tensor", "Parameter", "Buffer"):
        raise TypeError(
            f"a {kind} has no plain values on one rank: return .full_tensor() or .to_local() of it"
        )
    if tensor.device.type == "meta" or tensor.layout != sys.modules["torch"].strided or tensor.is_quantized:
        raise TypeError(
            f"a tensor on {tensor.device}, {tensor.layout}, has no plain values: return a dense one with data"
        )
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return plain.numpy()
    except TypeError:  # NumPy has no bfloat16 and no float8
        return plain.float().numpy()


def _pack_by_value(module: ModuleType | None, call: Any) -> tuple[bytes, set[str]]:
    """Pickle with the function's own module by value, so that it travels as it is now, importable or not."""
    if cloudpickle is None or module is None or not is_users(module):
        return _dump(call)
    with _registering:
        if module.__name__ in cloudpickle.list_registry_pickle_by_value():
            return _dump(call)
        cloudpickle.register_pickle_by_value(module)
        try:
            return _dump(call)
        except Exception as problem:  # a global of the module cannot travel: let the ranks import the module
            first = problem
        finally:
            cloudpickle.unregister_pickle_by_value(module)
    if PathFinder.find_spec(module.__name__.split(".")[0]) is None:
        raise first
    return _dump(call)


def _dump(call: Any) -> tuple[bytes, set[str]]:
    stream = BytesIO()
    pickler = _CallPickler(stream)
    pickler.dump(call)
    return stream.getvalue(), pickler.files

"""Functions travel by value and results as plain data; what cannot is refused in words."""

import socket

import numpy as np
import pytest

from playbook.runtime import payload

torch = pytest.importorskip("torch")


def there(function, *args, **levers):
    unpacked, arguments, keywords = payload.unpack_call(payload.pack_call(function, args, levers))
    return unpacked(*arguments, **keywords)


def back(value):
    return payload.unpack_result(payload.pack_result(value))


def test_closures_lambdas_and_methods_travel():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def times(self, x):
            return self.factor * x

    scale = Scale(3)
    assert there(lambda x, *, y: x + y + scale.factor, 1, y=2) == 6
    assert there(scale.times, 4) == 12


def test_code_keeps_its_file_and_line():
    function, _, _ = payload.unpack_call(payload.pack_call(lambda: None, (), {}))
    assert function.__code__.co_filename == __file__


def test_the_source_of_a_cell_travels_with_its_function():
    import linecache

    text = "def cell():\n    raise ValueError('here')\n"
    linecache.cache["<cell 7>"] = (len(text), None, text.splitlines(True), "<cell 7>")
    space: dict = {"__name__": "__main__"}
    exec(compile(text, "<cell 7>", "exec"), space)
    packed = payload.pack_call(space["cell"], (), {})
    del linecache.cache["<cell 7>"]
    payload.unpack_call(packed)
    assert linecache.getline("<cell 7>", 2) == "    raise ValueError('here')\n"


def test_what_cannot_travel_is_named():
    with (
        socket.socket() as open_socket,
        pytest.raises(TypeError, match="cannot travel to the ranks: .*socket"),
    ):
        payload.pack_call(lambda: open_socket, (), {})


def test_without_cloudpickle_functions_of_modules_still_travel(monkeypatch):
    import math

    monkeypatch.setattr(payload, "cloudpickle", None)
    assert payload.pack_call(math.sqrt, (4.0,), {})
    named = type(lambda: None)((lambda: None).__code__, {"__name__": "__main__"}, "cell")
    named.__module__ = "__main__"
    with pytest.raises(TypeError, match="cloudpickle is not installed here: install cloudpickle, or put"):
        payload.pack_call(named, (), {})


def test_tensors_become_arrays_inside_objects_too():
    class Box:
        def __init__(self, inside):
            self.inside = inside

    box = back(Box({"w": torch.nn.Parameter(torch.ones(2))}))
    assert isinstance(box.inside["w"], np.ndarray)
    np.testing.assert_array_equal(back(torch.ones(1, dtype=torch.bfloat16)), np.ones(1, dtype=np.float32))
    np.testing.assert_array_equal(back(torch.tensor([1 + 2j]).conj()), np.array([1 - 2j], dtype=np.complex64))


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.ones(2, device="meta"), "a tensor on meta"),
        (torch.eye(2).to_sparse(), "sparse_coo"),
    ],
    ids=["meta", "sparse"],
)
def test_tensors_without_plain_values_are_refused(tensor, words: str):
    with pytest.raises(TypeError, match=words):
        back([tensor])


def test_results_that_cannot_travel_are_refused():
    with pytest.raises(TypeError, match="the returned generator cannot travel back: .* Return numbers"):
        back(n for n in range(3))

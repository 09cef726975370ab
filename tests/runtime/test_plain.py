"""Plain data survives JSON with its types."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.runtime.plain import decode, encode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.integers() | st.tuples(st.integers()), inner)
    ),
    max_leaves=8,
)


def there_and_back(value):
    return decode(json.loads(json.dumps(encode(value))))


@given(PLAIN)
@settings(max_examples=50, deadline=None)
def test_plain_data_comes_back_equal(value):
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "bool", "c16", "u1"])
def test_arrays_keep_type_and_shape(dtype: str):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    back = there_and_back({"a": [array]})["a"][0]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_tensors_become_arrays():
    torch = pytest.importorskip("torch")
    back = there_and_back(torch.tensor([1.5, 2.5], dtype=torch.bfloat16))
    np.testing.assert_array_equal(back, np.array([1.5, 2.5], dtype=np.float32))


def test_numbers_of_numpy_become_numbers():
    assert there_and_back((np.float32(0.5), np.int64(3), np.bool_(True))) == (0.5, 3, True)


def test_sets_come_back_as_sets():
    assert there_and_back({1, 2}) == {1, 2}


def test_what_is_not_plain_becomes_its_repr():
    assert there_and_back([range(3)]) == ["range(0, 3)"]


def test_a_dict_that_uses_our_mark_is_kept_apart():
    value = {"__plain__": "array", "value": 1}
    assert there_and_back(value) == value

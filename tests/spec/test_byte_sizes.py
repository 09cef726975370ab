import pytest

from playbook.spec.byte_sizes import read_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("49GiB", 49 * 2**30),
        ("49 gib", 49 * 2**30),
        ("19.57 GB", 19.57e9),
        ("640KiB", 655_360),
        ("1000B", 1000),
        ("12345B", 12_345),
    ],
)
def test_sizes_are_read_with_their_units(text, size):
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["49 apples", "GiB", "-3GB", ""])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="must be a number and a unit, such as 49GiB"):
        read_size(text)


@pytest.mark.parametrize("text", ["3.81", "49", "12345", "1000000", "2000000.5"])
def test_a_number_needs_its_unit_however_large_it_is(text):
    with pytest.raises(ValueError, match=f"size='{text}' has no unit; use {text}GiB, {text}GB or {text}B"):
        read_size(text)

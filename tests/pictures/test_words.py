from playbook.pictures.words import buffer_size, difference, in_words, points, row, short


def test_buffers_have_binary_units_and_at_most_four_digits():
    assert buffer_size(1536) == "1.5 KiB"
    assert buffer_size(64 * 2**20) == "64 MiB"
    assert buffer_size(2_999_997, digits=3) == "2.86 MiB"


def test_equal_numbers_are_equal_in_words_and_others_signed():
    assert difference(10, 10) == "0 ✓"
    assert difference(11.45, 10) == "+14.5\u2009%"
    assert difference(None, 10) == ""


def test_shares_differ_in_points():
    assert points(0.25, 0.273) == "\u22122.3 points"


def test_whole_numbers_have_no_decimals():
    assert [short(value) for value in (33.0, 36.12, 0.5, 1234.0)] == ["33", "36.1", "0.5", "1\u2009234"]


def test_small_counts_are_words():
    assert [in_words(3), in_words(11)] == ["three", "11"]


def test_a_row_leaves_out_what_nobody_knows():
    assert row("time", formula="1 s", measured=None) == {"label": "time", "formula": "1 s"}

import pytest

from playbook import units


def plain(text):
    return text.replace("\N{THIN SPACE}", " ")


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (1_120e9, "1 120 GB"),
        (293.125e9, "293.1 GB"),
        (17.5e9, "17.5 GB"),
        (10.74e9, "10.7 GB"),
        (9.996e9, "10.0 GB"),
        (9.994e9, "9.99 GB"),
        (999.96e9, "1 000 GB"),
        (0, "0 GB"),
        (327_680, "0.000328 GB"),
        (-2.5e9, "−2.50 GB"),
    ],
)
def test_gigabytes_have_fewer_decimals_as_they_grow(size_bytes, text):
    assert plain(units.gb(size_bytes)) == text


def test_gibibytes_are_named_and_are_two_to_the_thirty():
    assert plain(units.gib(81_559 * 2**20)) == "79.6 GiB"
    assert plain(units.gb(81_559 * 2**20)) == "85.5 GB"


def test_megabytes_are_for_what_is_too_small_for_gigabytes():
    assert plain(units.mb(120_035_692)) == "120.0 MB"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(512, "512 B"), (4_190_000, "4.19 MB"), (2.5e12, "2.50 TB"), (0, "0 B"), (1e9, "1.00 GB")],
)
def test_sizes_take_the_unit_that_fits(size_bytes, text):
    assert plain(units.size(size_bytes)) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (4.234, "4.23 s"),
        (38, "38.0 s"),
        (0.0037, "3.70 ms"),
        (1.861e-5, "18.6 µs"),
        (0, "0 s"),
        (1234, "1 230 s"),
    ],
)
def test_times_have_three_significant_digits(duration_s, text):
    assert plain(units.seconds(duration_s)) == text


def test_thousands_stand_apart_with_a_thin_space_and_a_true_minus():
    assert units.thousands(-32768) == "\N{MINUS SIGN}32\N{THIN SPACE}768"


def test_differences_are_signed_per_cent_with_one_decimal():
    assert plain(units.percent(0.0731, signed=True)) == "+7.3 %"
    assert plain(units.percent(-0.0731, signed=True)) == "−7.3 %"
    assert plain(units.percent(3 / 7)) == "42.9 %"
    assert plain(units.percent(-0.0001, signed=True)) == "0.0 %"
    assert plain(units.percent(0.0001, signed=True)) == "0.0 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3135, "3 135"),
        (3135.0000000001, "3 135"),
        (12_345_678, "12 345 678"),
        (1567.5, "1 567.5"),
        (33.0, "33"),
        (1 / 3, "0.333333"),
        (66.80000000000001, "66.8"),
        (-9, "−9"),
        (0, "0"),
        (1000, "1 000"),
    ],
)
def test_whole_and_short_numbers_are_written_in_full(value, text):
    assert plain(units.number(value)) == text


def test_seconds_may_be_written_in_full_too():
    assert plain(units.seconds(3135)) == "3 140 s"
    assert plain(units.seconds(3135, units.number)) == "3 135 s"
    assert plain(units.seconds(0.0125, units.number)) == "12.5 ms"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1000, "1 000 B"),
        (1536, "1.50 KiB"),
        (1_000_000, "976.6 KiB"),
        (100_000_000, "95.4 MiB"),
        (64 * 2**20, "64.0 MiB"),
        (19.57 * 2**30, "19.6 GiB"),
        (2**40, "1.00 TiB"),
    ],
)
def test_binary_sizes_have_the_unit_that_fits(size_bytes, text):
    assert plain(units.binary_size(size_bytes)) == text

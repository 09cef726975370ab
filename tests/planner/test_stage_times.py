import pytest

from playbook.planner.stage_times import StageTimes

TIMES = StageTimes(
    sequences=(1, 2, 4),
    forward_s=(0.010, 0.016, 0.030),
    backward_input_s=(0.010, 0.017, 0.031),
    backward_weight_s=(0.008, 0.015, 0.029),
    source="measured:gloo",
    about="two layers",
)


def test_sizes_of_the_table_are_given_back_and_backward_is_the_sum_of_its_parts():
    taken = TIMES.at(2)
    assert taken == (0.016, pytest.approx(0.032), 0.017, 0.015)


def test_sizes_between_lie_on_a_straight_line():
    assert TIMES.at(3).forward_s == pytest.approx(0.023)


def test_a_larger_micro_batch_is_never_faster_than_a_smaller_one():
    noisy = StageTimes(sequences=(1, 2, 4), forward_s=(0.02, 0.019, 0.03), backward_s=(0.04, 0.05, 0.04))
    assert noisy.at(2).forward_s == 0.02
    assert noisy.at(4).backward_s == 0.05
    assert not noisy.split
    assert noisy.at(2).backward_input_s is None


@pytest.mark.parametrize("size", [0.5, 5, 8])
def test_sizes_beyond_the_table_are_refused_in_words(size):
    with pytest.raises(
        ValueError, match=f"micro_batch={size:g}: the table has sizes from 1 to 4 and says nothing"
    ):
        TIMES.at(size)


def test_a_table_comes_back_from_csv_and_from_a_data_frame(tmp_path):
    path = tmp_path / "times.csv"
    assert TIMES.to_csv(path).startswith(
        "sequences,forward_s,backward_s,backward_input_s,backward_weight_s,source\n"
    )
    assert StageTimes.from_csv(path, about="two layers") == TIMES
    assert StageTimes.from_table(TIMES.table, about="two layers") == TIMES


def test_a_table_without_the_parts_of_backward_comes_back_too(tmp_path):
    whole = StageTimes(sequences=(1, 2), forward_s=(1, 2), backward_s=(2, 4))
    whole.to_csv(tmp_path / "whole.csv")
    assert StageTimes.from_csv(tmp_path / "whole.csv") == whole


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sequences": (2, 1)}, "give micro-batch sizes that rise"),
        ({"sequences": ()}, "give micro-batch sizes that rise"),
        ({"forward_s": (1,)}, "forward_s has 1 time for 2 sizes"),
        ({"forward_s": (0, 1)}, "forward_s=0.0 must be above 0"),
        ({"backward_s": ()}, "backward_s has 0 times for 2 sizes"),
        ({"backward_input_s": (1, 1)}, "give both or neither"),
    ],
)
def test_columns_that_do_not_fit_are_refused(given, text):
    plain = {"sequences": (1, 2), "forward_s": (1, 2), "backward_s": (2, 4)}
    with pytest.raises(ValueError, match=text):
        StageTimes(**{**plain, **given})


def test_a_missing_column_or_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no column 'forward_s'"):
        StageTimes.from_table({"sequences": [1]})
    with pytest.raises(ValueError, match=r"none\.csv: there is no such file"):
        StageTimes.from_csv(tmp_path / "none.csv")


def test_sources_are_not_mixed():
    columns = {"sequences": [1, 2], "forward_s": [1, 2], "backward_s": [1, 2], "source": ["a", "b"]}
    with pytest.raises(ValueError, match="sources a, b are mixed"):
        StageTimes.from_table(columns)


def test_words_name_what_was_timed_and_the_source():
    text = repr(TIMES)
    assert text.startswith(
        "StageTimes(two layers; sequences: forward + backward = 1: 10.0\N{THIN SPACE}ms + "
    )
    assert text.endswith("measured:gloo)")

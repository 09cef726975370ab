import pytest

from playbook.program.schedule import schedule
from playbook.program.schedule_size import check_size, whole_count


@pytest.mark.parametrize(
    ("sizes", "works"),
    [
        # 2 · 4 · 2 actions a micro-batch: 5 000 000 / 16.
        ((4, 312_501, 2), "microbatches=312501 are 5000016 .* use microbatches=312500 or fewer"),
        ((10**12, 1), "use fewer stages"),
        ((100_000, 1_000_000), "use microbatches=25 or fewer"),
    ],
)
def test_a_size_that_would_run_for_minutes_is_refused(sizes, works):
    with pytest.raises(ValueError, match=works):
        schedule("interleaved-1f1b", *sizes)


def test_five_million_are_enough_and_one_micro_batch_more_is_too_many():
    check_size(5, 500_000, 1)
    with pytest.raises(ValueError, match="are 5000010 forwards and backwards, and 5000000 the most"):
        check_size(5, 500_001, 1)


def test_counts_are_whole():
    assert whole_count("stages", 4) == 4
    with pytest.raises(TypeError, match="stages=True is no whole number; use 1 or more"):
        whole_count("stages", True)

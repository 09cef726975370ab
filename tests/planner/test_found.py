import pytest

from playbook.planner import find_schedule


@pytest.fixture(scope="module")
def found():
    return find_schedule(4, 8, memory_cap=4)


def test_the_table_has_every_order_with_its_gap(found):
    table = found.table
    assert list(table.columns) == [
        "name",
        "placement",
        "copies",
        "makespan",
        "peak",
        "feasible",
        "objection",
        "lower_bound",
        "gap",
    ]
    assert table.makespan.is_monotonic_increasing
    assert {"found", "1f1b", "gpipe", "zb-h1"} <= set(table.name)
    row = table[table.name == "1f1b"].iloc[0]
    # 1F1B: (m + p − 1)(F + B) = 33; no order with one copy ends before (p − 1) F + m (F + I + W) = 27.
    assert (row.makespan, row.peak, row.lower_bound) == (33, 4, 27)
    assert row.gap == pytest.approx(6 / 27)


def test_an_order_with_two_copies_is_held_to_the_bound_of_two(found):
    rows = found.table[found.table.copies == 2]
    assert set(rows.placement) == {"bidirectional"}
    assert (rows.lower_bound <= 27).all()


def test_words_compare_like_with_like(found):
    text = repr(found)
    assert text.startswith(
        "FoundSchedule(p = 4, m = 8, chunks 1, memory cap 4: every stage held once: loop order of"
    )
    assert "every stage held twice: bidirectional order of" in text
    assert "as short as" in text or "shorter than" in text


def test_words_say_when_no_order_is_shorter():
    text = repr(find_schedule(4, 8, copies=1))
    assert "loop order of 27 cost units, as short as " in text
    assert text.endswith(", and none is shorter)")


def test_words_say_when_no_known_schedule_fits():
    found = find_schedule(4, 8, memory_cap=1, copies=1)
    assert found.best_known is None
    assert "where no known schedule keeps within cap and options" in repr(found)
    # One micro-batch after the other: (4 F + 4 I + W) each.
    assert found.makespan == 8 * 9


def test_an_order_over_the_cap_has_no_gap_to_the_bound_under_the_cap():
    table = find_schedule(4, 8, memory_cap=1, copies=1).table.set_index("name")
    assert table.gap.isna()["1f1b"]
    assert table.gap["found"] == 0

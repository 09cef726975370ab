import pytest

from playbook import tables

ROW = {
    "scenario": "s",
    "rank": 0,
    "op": "m0/F//x#0",
    "term": "activations",
    "bytes": 8,
    "source": "simulated",
}


def test_the_four_tables_have_their_columns():
    assert list(tables.TABLES) == ["memory", "traffic", "timeline", "parity"]
    assert tables.MEMORY == ("scenario", "rank", "op", "instant", "term", "bytes", "formula", "source")
    assert tables.PARITY == ("scenario", "quantity", "baseline", "value", "relative_error", "tolerance", "ok")
    assert len(tables.TRAFFIC) == 11
    assert len(tables.TIMELINE) == 13


def test_the_closed_sets_hold_their_words_in_order():
    assert len(tables.TERMS) == 13
    assert tables.TERMS[0] == "parameters"
    assert tables.TERMS[-1] == "reserved_unused"
    assert tables.PHASES == ("F", "R", "B", "I", "W", "O", "prefill", "decode")
    assert len(tables.KINDS) == 11
    assert len(tables.SOURCES) == 9


def test_rows_and_columns_give_the_same_frame_in_the_order_of_the_table():
    by_rows = tables.table("memory", [ROW])
    by_columns = tables.table("memory", {key: [value] for key, value in ROW.items()})
    assert list(by_rows.columns) == list(tables.MEMORY)
    assert by_rows.equals(by_columns)
    assert by_rows.attrs == {"schema_version": 1, "table": "memory"}


def test_an_empty_table_has_its_columns():
    assert list(tables.table("parity").columns) == list(tables.PARITY)


def test_unknown_tables_columns_and_words_are_refused():
    with pytest.raises(ValueError, match="table 'costs' is not known; tables are memory, traffic"):
        tables.table("costs")
    with pytest.raises(ValueError, match="table memory has no column 'colour'"):
        tables.table("memory", [{**ROW, "colour": 1}])
    with pytest.raises(ValueError, match="table memory: term 'heap' is not known; valid are parameters"):
        tables.table("memory", [{**ROW, "term": "heap"}])
    with pytest.raises(ValueError, match="source 'guess' is not known"):
        tables.table("memory", [{**ROW, "source": "guess"}])

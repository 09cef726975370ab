import pandas as pd
import pytest

import playbook as pb
from playbook.compare import COLUMNS
from playbook.program.ids import OPTIMIZER


@pytest.fixture
def s():
    work = pb.Workload(sequence=64, recipe="fsdp2-mixed")
    return pb.Scenario(pb.model("toy-15m"), work, pb.Layout(dp=2, zero=3), framework="transformers")


@pytest.fixture
def seen(s):
    """Ids and payloads of the scenario's own program, as a plain mapping."""
    program = pb.program(s)
    return dict(zip(program.ids(), program.rows.payload.tolist(), strict=True))


def test_a_program_joins_itself_whole(s):
    found = pb.compare(s, pb.program(s))
    assert found.match_rate == 1.0
    assert (found.only_predicted, found.only_observed, found.payload_mismatches) == ((), (), ())
    assert found.level == "operation"


def test_an_operation_removed_lowers_the_rate_and_is_named(s, seen):
    seen.pop("m0/B/layers.3.mlp.up_proj/mm#1")
    found = pb.compare(s, seen)
    assert found.only_predicted == ("m0/B/layers.3.mlp.up_proj/mm#1",)
    assert found.match_rate == (len(found.predicted) - 1) / len(found.predicted)


def test_an_operation_added_lowers_the_rate_and_is_named(s, seen):
    seen["m0/F/layers.3/gelu#0"] = 0
    found = pb.compare(s, seen)
    assert found.only_observed == ("m0/F/layers.3/gelu#0",)
    assert found.match_rate == len(found.predicted) / (len(found.predicted) + 1)


def test_layout_operations_count_on_neither_side(s, seen):
    plain = pb.compare(s, seen)
    seen["m0/F/layers.3/view#0"] = 0
    assert pb.compare(s, seen).match_rate == plain.match_rate == 1.0
    assert not any("split_with_sizes_copy" in text or "chunk_cat" in text for text in plain.predicted)


def test_the_optimizer_is_one_id_however_many_kernels_it_runs(s, seen):
    seen["m-1/O//_fused_adamw_#0"] = 0
    seen["m-1/O//_foreach_add_#3"] = 0
    found = pb.compare(s, seen)
    assert found.match_rate == 1.0
    assert [text for text in found.observed if "/O/" in text] == [OPTIMIZER]


def test_payloads_that_differ_are_listed(s, seen):
    seen["m0/F/layers.3/all_gather@dp#0"] += 16
    found = pb.compare(s, seen)
    (mismatch,) = found.payload_mismatches
    assert mismatch[0] == "m0/F/layers.3/all_gather@dp#0"
    assert mismatch[2] - mismatch[1] == 16
    assert found.match_rate == 1.0


def test_a_source_that_saw_communication_only_joins_on_that(s):
    found = pb.compare(s, pb.traffic(s).table)
    assert (found.level, found.match_rate) == ("collective", 1.0)
    assert all("@dp" in text for text in found.predicted)


def test_a_source_that_saw_modules_only_joins_at_their_level(s, seen):
    modules = {text.rpartition("/")[0] for text in seen}
    found = pb.compare(s, sorted(modules))
    assert found.level == "module"
    layers = ["m0/F/layers.0", "m0/F/layers.1"]
    coarse = pb.compare(s, layers)
    assert coarse.joined == tuple(layers)


def test_the_table_sets_formula_traced_and_measured_side_by_side(s):
    class Trace:
        payloads = {"m0/F/layers.0/all_gather@dp#0": 8}
        peak_bytes = 1000
        terms = [{"term": "parameters", "bytes": 600}, {"term": "activations", "bytes": 400}]

    memory = pd.DataFrame(
        {"rank": [0, 0, 1], "instant": ["B"] * 3, "term": ["parameters", "activations", "parameters"]}
        | {"bytes": [700, 500, 1]}
    )

    class Run:
        traffic = pb.traffic(s).table.assign(source="measured:gloo")

    Run.memory = memory
    table = pb.compare(s, Trace(), Run()).table
    assert tuple(table.columns) == COLUMNS
    peak = table[table["quantity"] == "peak"].iloc[0]
    assert (peak["traced"], peak["measured"]) == (1000, 1200)
    assert peak["difference"] == 1200 / peak["formula"] - 1
    gathers = table[table["quantity"] == "all_gather@dp"].iloc[0]
    assert gathers["traced"] == 8
    assert gathers["measured"] == gathers["formula"]


def test_operations_list_both_sides(s, seen):
    seen.pop("m0/B/layers.3.mlp.up_proj/mm#1")
    seen["m0/F/layers.3/gelu#0"] = 0
    table = pb.compare(s, seen).operations
    assert table[table["observed"].isna()]["op"].tolist() == ["m0/B/layers.3.mlp.up_proj/mm#1"]
    assert table[table["formula"].isna()]["op"].tolist() == ["m0/F/layers.3/gelu#0"]


def test_predicted_memory_and_programs_are_predictions_too(s):
    assert pb.compare(pb.training_memory(s), pb.program(s)).match_rate == 1.0
    assert pb.compare(pb.program(s), pb.program(s)).match_rate == 1.0


def test_what_is_no_prediction_or_source_is_refused(s):
    with pytest.raises(TypeError, match="prediction of type str; give a Scenario"):
        pb.compare("toy-15m", s)
    with pytest.raises(TypeError, match="cannot compare with a int"):
        pb.compare(s, 3)


def test_its_text_says_what_joined(s):
    assert "match rate 100.00%" in repr(pb.compare(s, pb.program(s)))

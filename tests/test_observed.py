import pandas as pd
import pytest

import playbook as pb
from playbook.observed import Observed, by_collective, kept, observed_in, peak_terms


def test_layout_operations_are_left_out_and_the_optimizer_is_one_id():
    found = kept(
        {
            "m0/F/norm/view#0": 0,
            "m0/F/norm/mul#0": 0,
            "m0/F//all_gather@dp#0": 8,
            "m-1/O//_fused_adamw_#0": 0,
            "m-1/O//add#1": 0,
            "m-1/O//all_gather@dp#0": 4,
        }
    )
    assert found == {
        "m0/F/norm/mul#0": 0,
        "m0/F//all_gather@dp#0": 8,
        "m-1/O//optimizer#0": 0,
        "m-1/O//all_gather@dp#0": 4,
    }


@pytest.mark.parametrize(
    ("ids", "level"),
    [
        ({"m0/F/norm/mul#0": 0, "m0/F//all_gather@dp#0": 8}, "operation"),
        ({"m0/F//all_gather@dp#0": 8}, "collective"),
        ({"m0/F/layers.0": 0}, "module"),
    ],
)
def test_the_level_is_what_the_ids_name(ids, level):
    assert Observed(source="traced", ids=ids).level == level


def test_a_run_is_read_as_one_of_its_ranks_saw_it():
    traffic = pd.DataFrame(
        {
            "rank": [0, 1],
            "op": ["m0/F//all_gather@dp#0"] * 2,
            "payload_bytes": [8, 9],
            "source": "measured:gloo",
        }
    )
    memory = pd.DataFrame({"rank": [0, 1], "instant": "B", "term": "parameters", "bytes": [100, 200]})

    class Run:
        pass

    run = Run()
    run.traffic, run.memory = traffic, memory
    found = observed_in(run, rank=1)
    assert (dict(found.ids), found.peak_bytes, found.source) == (
        {"m0/F//all_gather@dp#0": 9},
        200,
        "measured:gloo",
    )


def test_the_peak_is_the_instant_with_most_bytes_that_an_allocator_hands_out():
    memory = pd.DataFrame(
        {
            "instant": ["F", "F", "B", "B"],
            "term": ["parameters", "context", "parameters", "activations"],
            "bytes": [10, 900, 10, 5],
        }
    )
    assert peak_terms(memory) == {"parameters": 10, "activations": 5}


def test_payloads_add_up_by_collective_and_axis():
    ids = {
        "m0/F//all_gather@dp#0": 8,
        "m0/B//all_gather@dp#0": 8,
        "m0/F//all_reduce@tp#0": 3,
        "m0/F//mm#0": 0,
    }
    assert by_collective(ids) == {"all_gather@dp": 16, "all_reduce@tp": 3}


def test_a_source_without_receives_sees_a_message_as_its_send():
    sends = Observed(source="measured:gloo", ids={"m0/F/stage0/send@pp#0": 4})
    assert sends.could_see("m0/F/stage0/send@pp#0")
    assert not sends.could_see("m0/B/stage0/receive@pp#0")
    s = pb.Scenario(pb.model("toy-15m"), pb.Workload(sequence=64), pb.Layout(pp=2))
    table = pb.traffic(s).table
    assert pb.compare(s, table[table["collective"] == "send"]).match_rate == 1.0


def test_ids_alone_are_a_source():
    assert observed_in(["m0/F/norm/mul#0"], 0).ids == {"m0/F/norm/mul#0": 0}

"""A count of one has its noun in the singular, wherever a text counts."""

import re

import pytest

import playbook as pb
from playbook.lessons import exercises
from playbook.predict.kv_cache import KvLayers
from playbook.units import THIN, counted

PLURAL = re.compile(
    rf"(?<![\d.,{THIN}−x/])(?<![-+*/x] )\b1 (?:(?:such|equal|real|waiting) )?"
    r"(?:ranks|GPUs|stages|layers|micro-batches|sequences|chunks|steps|tokens|nodes|cores|threads|heads|values)\b"
)
ONE_RANK = pb.Scenario(pb.model("toy-15m"), pb.Workload(sequence=64), pb.Layout())
COMMANDS = (
    "memory --model toy-15m --sequence 64",
    "kv --model toy-15m --tokens 64 --pool 1MiB",
    "inference --model toy-15m --prompt 64 --output 8 --concurrency 1",
    "fit --model llama-3.1-70b --dp 256 --zero 3 --vary micro-batch --recompute full --sequence 65536",
    "fit --model toy-15m --sequence 64 --vary gpus",
    "explain 1MiB --model toy-15m --sequence 64",
    "schedule 1f1b --stages 1 --microbatches 1",
    "collective all_reduce --ranks 1",
    "params --model toy-15m",
)


def test_a_noun_follows_its_count():
    assert (counted(0, "rank"), counted(1, "rank"), counted(2, "rank")) == ("0 ranks", "1 rank", "2 ranks")
    assert counted(4096, "micro-batch", "micro-batches") == f"4{THIN}096 micro-batches"


def test_what_is_searched_for_is_found():
    assert PLURAL.search("on 1 ranks")
    assert PLURAL.search("the size of 1 such sequences")
    assert not PLURAL.search("on 11 ranks, 1 rank, rank 1 of 2 ranks")


@pytest.mark.parametrize("name", sorted(exercises()))
def test_an_exercise_about_one_rank_reads_as_one(name):
    for s in (exercises()[name].example(), ONE_RANK):
        found = pb.check(name, 1.0, s)
        assert not PLURAL.search(found.question + " " + found.working), found.question


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_about_one_of_a_kind_reads_as_one(command, line):
    status, out, err = command(line)
    assert status == 0, err
    assert not PLURAL.search(out), out


def test_values_of_one_rank_and_one_sequence_read_as_one():
    load = pb.Serving(prompt=8, output=8, concurrency=1)
    told = (
        repr(pb.inference_memory(ONE_RANK.model, load)),
        repr(pb.fit(ONE_RANK, "gpus")),
        pb.kv_cache([KvLayers(count=1, heads=1, head_dim=8, shared=True)]).note,
    )
    assert not any(map(PLURAL.search, told)), told
    assert told[-1] == "1 layer reads an earlier layer's cache and takes nothing"


def test_refusals_about_one_rank_read_as_one():
    with pytest.raises(ValueError, match="the world has 1 rank; use 0 to 0"):
        ONE_RANK.layout.coordinates(1)
    with pytest.raises(ValueError, match="the pipeline has 1 rank; use 0 to 0"):
        pb.schedule("1f1b", 1, 1).simulate(stragglers={1: 2.0})

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb
from playbook.predict.memory import COMMUNICATOR_BYTES, CONTEXT_BYTES, formulas_at
from playbook.spec import cluster
from playbook.tables import MEMORY

MIB = 2**20


def memory_of(framework="textbook", model="llama-3.1-8b", layout=None, rank=None, **work):
    s = pb.Scenario(pb.model(model), pb.Workload(**work), pb.Layout(**(layout or {})), framework=framework)
    return pb.training_memory(s, rank)


def test_terms_add_up_to_the_peak_then_to_reserved_then_to_the_device():
    found = memory_of("transformers", layout={"dp": 8, "zero": 3}, recipe="fsdp2-mixed", recompute="full")
    sizes = {row["term"]: row["bytes"] for row in found.terms}
    unused, context = sizes.pop("reserved_unused"), sizes.pop("context")
    assert sum(sizes.values()) == found.peak_bytes
    assert found.reserved_bytes == found.peak_bytes + unused
    assert found.device_bytes == found.reserved_bytes + context


def test_the_driver_takes_639_mib_and_the_first_communicator_558():
    assert (CONTEXT_BYTES, COMMUNICATOR_BYTES) == (639 * MIB, 558 * MIB)
    alone, several = memory_of(), memory_of(layout={"dp": 2})
    assert alone.device_bytes - alone.reserved_bytes == 639 * MIB
    assert several.device_bytes - several.reserved_bytes == 1197 * MIB


def test_the_papers_accounting_adds_no_allocator():
    assert memory_of().reserved_bytes == memory_of().peak_bytes


def test_only_full_sharding_of_70b_fits_64_h100s():
    fits = [
        memory_of(model="llama-3.1-70b", layout={"dp": 64, "zero": zero}, recompute="full").fits
        for zero in range(4)
    ]
    assert fits == [False, False, False, True]


def test_the_worst_rank_is_the_first_of_the_stage_with_the_highest_peak():
    found = memory_of(layout={"pp": 4, "tp": 2, "dp": 2}, global_batch=16)
    peaks = [row["peak_bytes"] for row in found.per_stage]
    worst = peaks.index(max(peaks))
    assert found.worst_rank == {"rank": worst * 4, "tp": 0, "cp": 0, "dp": 0, "pp": worst}
    assert found.peak_bytes == max(peaks)
    assert [row["stage"] for row in found.per_stage] == [0, 1, 2, 3]


def test_a_given_rank_is_read_where_it_stands():
    found = memory_of(layout={"pp": 4}, global_batch=8, rank=3)
    assert found.worst_rank["rank"] == found.worst_rank["pp"] == 3
    assert found.peak_bytes == found.per_stage[3]["peak_bytes"]


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match="rank=9 but the world has 8 ranks"):
        memory_of(layout={"dp": 8}, rank=9)


def test_ranks_whose_shards_are_uneven_differ():
    layout = {"dp": 5, "zero": 3}
    first, last = (
        memory_of("transformers", model="llama-3.2-1b", layout=layout, rank=rank, recipe="fsdp2-mixed")
        for rank in (0, 4)
    )
    assert last.peak_bytes < first.peak_bytes


def test_state_formulas_read_as_in_the_paper():
    found = memory_of(layout={"dp": 8, "zero": 1}, recompute="full")
    formulas = {row["term"]: row["formula"] for row in found.terms}
    assert formulas["parameters"] == "2·Ψ"
    assert formulas["gradients"] == "2·Ψ"
    assert formulas["optimizer"] == "8·Ψ/N"
    assert formulas["master_weights"] == "4·Ψ/N"
    assert formulas["logits"] == "4·b·s·V"
    assert formulas["activations"] == "68·b·s·h"


def test_the_table_has_a_row_a_term_with_its_formula():
    found = memory_of(layout={"dp": 8, "zero": 3})
    table = found.table
    assert tuple(table.columns) == MEMORY
    assert table["formula"].notna().all()
    assert table["bytes"].sum() == found.device_bytes


def values_of(s):
    model, work, layout = s.model, s.workload, s.layout
    names = {"h": model.hidden, "a": model.heads, "g": model.kv_heads, "k": model.head_dim, "f": model.ffn}
    return {
        **names,
        "V": model.vocabulary,
        "b": work.micro_batch,
        "s": work.sequence,
        "N": layout.dp,
        "t": layout.tp,
    }


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["textbook", "torch", "transformers"]),
    st.sampled_from([8, 16]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.sampled_from(["none", "full"]),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_formulas_evaluate_to_the_bytes_of_the_walk(
    framework, hidden, dp, tp, recompute, tied, layers, batch
):
    model = pb.Model(
        name="drawn",
        family="llama",
        layers=layers,
        hidden=4 * hidden,
        heads=4,
        kv_heads=2,
        head_dim=hidden,
        ffn=12 * hidden,
        vocabulary=64,
        tied=tied,
        max_sequence=64,
    )
    tp = 1 if framework == "transformers" else tp
    zero = 3 if dp > 1 else 0
    recipe = "fsdp2-mixed" if zero else "bf16"
    work = pb.Workload(sequence=16, micro_batch=batch, recompute=recompute, recipe=recipe)
    layout = pb.Layout(dp=dp, tp=tp, zero=zero)
    s = pb.Scenario(model, work, layout, cluster("laptop"), framework=framework)
    program = pb.program(s)
    walk = program.memory()
    for row in (0, walk.peak_row, len(program) - 1):
        found = {term: size.at(values_of(s)) for term, size in formulas_at(s, program, row).items()}
        names = walk.term_names
        assert found == dict(zip(names, walk.levels[row].tolist(), strict=True))


def test_a_lever_that_drops_nothing_is_told():
    told = memory_of("textbook", model="toy-15m", sequence=64, recompute="selective")
    assert "flash attention keeps none" in told.note
    assert told.note in repr(told)
    scores = memory_of("textbook", model="toy-15m", sequence=64, recompute="selective", attention="math")
    assert not scores.note
    assert not memory_of("torch", model="toy-15m", sequence=64, recipe="fp32").note


def test_keys_of_the_models_file_that_were_not_read_are_told():
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 4, "vocab_size": 5, "n_heads": 2}
    scenario = pb.Scenario(pb.model({"model_type": "gpt2", **sizes}), pb.Workload(sequence=4))
    told = pb.training_memory(scenario)
    assert told.note.endswith("without a part in these numbers: n_heads (did you mean n_head?)")
    assert told.note in repr(told)

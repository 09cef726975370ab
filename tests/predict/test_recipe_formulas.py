"""Formulas of recipes by tensor class, of adapters, chunked losses and offloading give the walk's bytes."""

import pytest

import playbook as pb
from playbook.predict.memory import formulas_at

MODEL = pb.model("llama-3.1-8b")
SIZES = {
    "b": 1,
    "s": 2048,
    "L": 32,
    "V": 128_256,
    "f": 14_336,
    "h": 4096,
    "a": 32,
    "g": 8,
    "k": 128,
}


@pytest.mark.parametrize(
    ("layout", "degrees"),
    [({"dp": 8, "zero": 3}, {"N": 8, "t": 1}), ({"tp": 4, "dp": 2, "zero": 1}, {"N": 2, "t": 4})],
    ids=["zero 3", "tp and zero 1"],
)
@pytest.mark.parametrize(
    "work",
    [
        {"recipe": "adam8bit"},
        {"recipe": "muon"},
        {"recipe": "fp8"},
        {"recipe": "qlora"},
        {"loss": "chunked"},
        {"offload": "cpu", "offload_parts": "all"},
    ],
    ids=lambda work: "-".join(map(str, work.values())),
)
def test_formulas_evaluate_to_the_bytes_of_the_walk(work, layout, degrees):
    s = pb.Scenario(MODEL, pb.Workload(sequence=2048, **work), pb.Layout(**layout))
    walk = pb.program(s).memory()
    for row in (0, walk.peak_row, len(walk.totals) - 1):
        found = {
            term: size.at({**SIZES, **degrees}) for term, size in formulas_at(s, walk.program, row).items()
        }
        assert {term: size for term, size in found.items() if size} == walk.terms_at(row)

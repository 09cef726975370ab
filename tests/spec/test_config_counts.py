"""Counts of Hugging Face's own classes, for configurations of many keys: see the file's source."""

import json
from pathlib import Path

import pytest

import playbook as pb

FILE = Path(__file__).parents[1] / "data" / "parameters_by_transformers.json"
ROWS = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
REPORTED = {
    "gpt2": {"attn_pdrop", "embd_pdrop", "resid_pdrop"},
    "gemma2": {"attn_logit_softcapping", "final_logit_softcapping"},
    "gpt_oss": {"rope_parameters"},
}
"""Keys of these files that change what is computed, and have no part in a number here."""


def label(row):
    return f"{row['config']['model_type']}-{ROWS.index(row)}"


def test_every_kind_that_is_read_has_rows_but_the_renamed_one():
    from playbook.spec.config import KINDS

    assert {row["config"]["model_type"] for row in ROWS} == set(KINDS) - {"kimi_k2"}


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_counts_equal_those_of_hugging_faces_classes(row):
    model = pb.model(row["config"])
    assert model.parameters == row["total"]
    assert list(model.per_layer) == row["per_layer"]
    routed = [w.numel for layer in range(model.layers) for w in model.block_parameters(layer) if w.expert]
    assert sum(routed) == row["routed_experts"]


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_no_key_of_these_files_is_left_unread_in_silence(row):
    model = pb.model(row["config"])
    assert set(model.ignored_keys) <= REPORTED.get(model.family, set())


@pytest.mark.parametrize("row", [row for row in ROWS if row["layer_types"]], ids=label)
def test_windows_are_in_the_layers_that_hugging_face_gives_them(row):
    full = [kind == "full_attention" for kind in row["layer_types"]]
    assert [window is None for window in pb.model(row["config"]).windows] == full

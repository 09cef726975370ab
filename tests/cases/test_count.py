"""How many of the users' questions about counts, training memory and caches are asked."""

import json
import runpy
from pathlib import Path

import pytest

HERE, DATA = Path(__file__).parent, Path(__file__).resolve().parents[1] / "data"
TOPICS = {"params": 12, "train_memory": 15, "kv": 13}
"""Cases by file: two of training memory are about stages and stand with the parameters."""


def cases(topic):
    return [case["id"] for case in json.loads((DATA / f"cases_{topic}.json").read_text("utf-8"))]


@pytest.mark.parametrize(("topic", "number"), TOPICS.items())
def test_each_file_has_its_cases(topic, number):
    assert len(set(cases(topic))) == number


def test_forty_cases_are_there_and_at_most_five_are_not_asked():
    assert len({case for topic in TOPICS for case in cases(topic)}) == 40
    modules = [runpy.run_path(str(HERE / f"test_{topic}_cases.py")) for topic in TOPICS]
    missing = {number: why for module in modules for number, why in module.get("NOT_ASKED", {}).items()}
    assert len(missing) <= 5
    assert all(missing.values())

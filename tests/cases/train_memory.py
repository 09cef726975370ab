"""Users' questions about training memory, and what the tests that ask them share.

Questions and answers are those of `tests/data/cases_train_memory.json`, each with its source; no expected
value is computed here. What a case leaves open is asked with a named assumption, listed in `OPEN`; what its
inputs do not determine is in `NOT_ASKED`.
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import playbook as pb
from playbook.cli import run_command
from playbook.predict.memory import TrainingMemory

GB, MB, GIB = 10**9, 10**6, 2**30
FILE = Path(__file__).resolve().parents[1] / "data" / "cases_train_memory.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(FILE.read_text("utf-8"))}
ASKED: set[str] = set()

OPEN = {
    "mem-04": "28 layers, 16 heads of 256 and 16 384 features of GPT-J; one token, so that states are all; "
    "2 048 tokens for what does not shrink",
    "mem-05": "allocations one by one as Hugging Face's code makes them: those of Qwen3-8B, whose vocabulary "
    "is the same",
    "mem-08": "the ratio holds for a layer, so that of GPT-3's sizes with a·s/h = 16 is asked",
    "mem-09": "the parts of attention that the note names: input, norm output, q, k, v and the core's output",
    "mem-11": "the parameters are those of Llama 2 70B; 8 tokens, so that the step's end is seen alone",
    "mem-12": "the bucket is that of a model with more parameters than it has elements",
    "mem-14": "32 heads, as the model's card says",
    "mem-17": "16 heads of 80 in a vision layer; 32 heads of 128 and 8 for keys in a text layer; the base is "
    "given, since images need more than layers",
    "mem-20": "8-bit moments of the token table too, as the expected 2 bytes a parameter say",
    "mem-25": "Llama 3.2 1B, 8 tokens, DeepSpeed's buffers: gathered weights of stage 3 turn the order round",
    "mem-24": "adapters of rank 8 on q and v: 0.04 % of the model",
}
"""What a case does not say, and how it is asked nevertheless."""

NOT_ASKED = {
    "mem-22": "the model, the micro-batch and the split of the three stages that were measured",
}
"""Cases whose inputs do not determine a prediction, with what is missing."""


def case(number: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand a test its case, and note that the case is asked."""
    ASKED.add(number)
    return pytest.mark.parametrize(
        ("given", "expected"), [(CASES[number]["input"], CASES[number]["expected"])], ids=[number]
    )


def within(expected: float, per_cent: float) -> Any:
    """A number up to a tolerance in per cent."""
    return pytest.approx(expected, rel=per_cent / 100)


def predict(model: pb.Model | str, layout: pb.Layout | None = None, **more: Any) -> TrainingMemory:
    """Memory of a model, a preset's if it is a name; `framework` or fields of the workload."""
    shape = pb.model(model) if isinstance(model, str) else model
    framework = more.pop("framework", "textbook")
    work = pb.Workload(**{"sequence": 8, **more})
    return pb.training_memory(pb.Scenario(shape, work, layout or pb.Layout(), framework=framework))


def term(found: Any, name: str) -> int:
    """Bytes of one term at the peak."""
    return {row["term"]: row["bytes"] for row in found.terms}[name]


def command(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run a command with `--json` and return its object."""
    assert run_command(shlex.split(f"{line} --json")) == 0
    return json.loads(capsys.readouterr().out)

"""How a child process fails is said in one line; what it loads and how it ends is tested with traces."""

import json

import pytest

from playbook.runtime.child import answer, child_environment, failure_of


def test_a_signal_is_named(tmp_path):
    failure = failure_of(-9, tmp_path / "none", tmp_path / "log", "the trace")
    assert str(failure) == "the process of the trace was ended by SIGKILL"


def test_its_last_words_are_quoted(tmp_path):
    log = tmp_path / "log"
    log.write_text("first\nlast words\n")
    failure = failure_of(3, tmp_path / "none", log, "the twin")
    assert str(failure) == "the process of the twin ended with code 3: last words"


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("ValueError", ValueError, "tp=3 does not divide"),
        ("TypeError", TypeError, "tp=3 does not divide"),
        ("OSError", RuntimeError, "the trace failed: OSError: tp=3 does not divide"),
    ],
)
def test_a_refusal_keeps_its_kind_and_words_and_a_fault_is_named(tmp_path, kind, error, words):
    result = tmp_path / "result"
    result.write_text(json.dumps({"kind": kind, "message": "tp=3 does not divide"}))
    failure = failure_of(1, result, tmp_path / "log", "the trace")
    assert type(failure) is error
    assert str(failure) == words


def test_a_child_finds_this_package_and_has_its_threads():
    environment = child_environment(2)
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["PYTHONPATH"]


def test_an_answer_and_an_error_are_written_where_they_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("playbook.runtime.child.end_with_parent", lambda: None)
    request, result = tmp_path / "request", tmp_path / "result"
    request.write_text(json.dumps({"a": 2}))
    assert answer(lambda asked: asked["a"] * 3, request, result) == 0
    assert json.loads(result.read_text()) == 6
    assert answer(lambda asked: asked["b"], request, result) == 1
    assert json.loads(result.read_text())["kind"] == "KeyError"

"""What `--help` says: whole sentences, every option explained, examples that run."""

import re

import pytest

from playbook.cli import commands

SLOW = ("trace", "twin", "run")
"""Their examples take a GPU, ranks or a minute; `playbook lab`, `doctor` and `demo` need no example."""


def example_of(text):
    found = re.search(r"Example:\s+playbook\s+(.*?)\n\n", text, re.DOTALL)
    return " ".join(found[1].split()) if found else None


def test_the_list_of_commands_has_a_whole_sentence_for_each(command):
    status, out, _ = command("--help")
    assert status == 0
    assert "..." not in out.partition("Commands:")[2]
    for name in commands():
        assert re.search(rf"^  {name} +[A-Z].*\.$", out, re.MULTILINE), name
    assert "playbook COMMAND --help" in " ".join(out.split())


@pytest.mark.parametrize("name", commands())
def test_every_option_is_explained(command, name):
    status, out, _ = command(f"{name} --help")
    assert status == 0
    options = re.split(r"\n  (?=--)", out.partition("Options:")[2])[1:]
    assert options
    for option in options:
        words = re.sub(r"\[(default|required)[^]]*\]", "", option)
        assert len(words.split()) > 3, option
        assert words.rstrip().endswith("."), option


@pytest.mark.parametrize(
    "name", [name for name in commands() if name not in (*SLOW, "lab", "doctor", "demo")]
)
def test_the_example_of_a_command_runs(command, name):
    line = example_of(command(f"{name} --help")[1])
    assert line is not None
    assert line.split()[0] == name
    status, out, err = command(line)
    assert status == 0, err
    assert out


@pytest.mark.parametrize("name", SLOW)
def test_commands_that_take_longer_have_an_example_too(command, name):
    assert example_of(command(f"{name} --help")[1]).startswith(f"{name} ")


@pytest.mark.parametrize(
    ("name", "own"), [("fit", "--vary"), ("twin", "--network"), ("cut-stages", "--memory-cap-gb")]
)
def test_what_a_command_alone_has_stands_behind_the_model(command, name, own):
    options = re.findall(r"^  (--[a-z-]+)", command(f"{name} --help")[1].partition("Options:")[2], re.M)
    assert options[:2] == ["--model", own]

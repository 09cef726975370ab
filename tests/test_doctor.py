import json
import sys

import pytest
from typer.testing import CliRunner

from playbook.cli import app, checks

RUNNER = CliRunner()


def finding(**changed):
    values = {"name": "thing", "ok": True, "found": "1.0", "mend": "do this", "needed_for": checks.LAB}
    return checks.Finding(**{**values, **changed})


def test_python_and_torch_of_the_tests_are_fine():
    assert checks.check_python().ok
    assert checks.check_torch().ok


@pytest.mark.parametrize(
    ("version", "tested"), [("2.10.0", False), ("2.11.0+cu130", True), ("2.13.1", True), ("2.14.0a0", False)]
)
def test_torch_versions_from_2_11_to_2_13_are_tested(version, tested):
    assert checks.is_tested(version) is tested


@pytest.mark.dist
@pytest.mark.timeout(120)
def test_two_ranks_average_over_gloo():
    found = checks.check_gloo()
    assert found.ok, found.found
    assert found.found.startswith("2 ranks averaged in")


def test_a_package_that_is_missing_says_how_to_get_it():
    found = checks.installed("no_such_package", checks.LAB)
    assert not found.ok
    assert found.found == "not installed"
    assert found.mend == f"{sys.executable} -m pip install no_such_package"


def test_a_check_that_breaks_is_a_finding():
    def check_the_moon():
        raise OSError("too far\naway")

    found = checks.guarded(check_the_moon)
    assert (found.name, found.ok, found.found) == ("the moon", False, "OSError: too far")


def test_a_run_directory_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("PLAYBOOK_RUNS", str(blocked / "runs"))
    found = checks.check_run_directory()
    assert not found.ok
    assert "PLAYBOOK_RUNS" in found.mend


def test_missing_notebooks_packages_do_not_stop_ranks():
    assert checks.ranks_can_run([finding(ok=False), finding(needed_for=checks.RANKS)])
    assert not checks.ranks_can_run([finding(ok=False, needed_for=checks.RANKS)])


def test_the_command_prints_rows_with_how_to_mend_them(monkeypatch):
    bad = finding(name="other", ok=False, needed_for=checks.RANKS)
    monkeypatch.setattr(checks, "all_checks", lambda: [finding(), bad])
    shown = RUNNER.invoke(app, ["doctor"])
    assert shown.exit_code == 1
    assert shown.stdout.splitlines() == [
        "ok  thing  1.0",
        "no  other  1.0",
        "           for running ranks: do this",
    ]


def test_the_command_prints_one_json_object(monkeypatch):
    monkeypatch.setattr(checks, "all_checks", lambda: [finding()])
    shown = RUNNER.invoke(app, ["doctor", "--json"])
    assert shown.exit_code == 0
    row = {"name": "thing", "ok": True, "found": "1.0", "mend": "do this", "needed_for": "the notebooks"}
    assert json.loads(shown.stdout) == {"ok": True, "checks": [row]}

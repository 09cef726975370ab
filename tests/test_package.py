import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import playbook as pb

ROOT = Path(pb.__file__).parents[1]
HEAVY = (
    "torch",
    "ipywidgets",
    "plotly",
    "pandas",
    "anywidget",
    "typer",
    "cloudpickle",
    "jupyterlab",
    "numpy",
)


def in_a_fresh_interpreter(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_playbook_loads_nothing_heavy():
    code = f"import playbook, sys; print([name for name in {HEAVY} if name in sys.modules])"
    assert in_a_fresh_interpreter(code) == "[]"


def test_describing_a_scenario_loads_nothing_heavy():
    code = (
        "import playbook as pb, sys\n"
        "pb.Scenario(pb.model('toy-15m'), pb.Workload(), pb.Layout(dp=2)).to_json()\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert in_a_fresh_interpreter(code) == "[]"


def test_all_lists_the_public_namespace():
    public = {name for name in dir(pb) if not name.startswith("_")}
    assert set(pb.__all__) == public == set(pb.HOMES)


@pytest.mark.parametrize("name", pb.HOMES)
def test_every_name_is_found_at_its_home(name):
    found = getattr(pb, name)
    assert callable(found)
    assert found.__doc__
    assert getattr(importlib.import_module(pb.HOMES[name]), name) is found


@pytest.mark.parametrize(
    ("module", "name"), [("playbook.program", "program"), ("playbook.compare", "compare")]
)
def test_a_function_keeps_its_name_when_the_module_of_that_name_is_imported(module, name):
    code = f"import {module}; import playbook; print(type(playbook.{name}).__name__)"
    assert in_a_fresh_interpreter(code) == "function"


def test_an_unknown_name_lists_those_that_there_are():
    with pytest.raises(AttributeError, match="no attribute 'plann'; it has Cluster, JobCancelled, KvLayers"):
        pb.plann  # noqa: B018


def test_the_readme_shows_every_picture_in_the_theme_of_its_reader():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(
        r'scheme: dark\)" srcset="(docs/[a-z-]+)-dark\.png"><img alt="[^"]+" src="([^"]+)"', text
    )
    assert [light for _, light in shown] == [f"{stem}-light.png" for stem, _ in shown]
    files = {f"{stem}-{theme}.png" for stem, _ in shown for theme in ("light", "dark")}
    assert files == {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.png")}
    assert set(re.findall(r"docs/[\w-]+\.png", text)) == files

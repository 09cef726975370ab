"""Every notebook: stored without outputs, short cells, and it runs from top to bottom without a click."""

import ast
import asyncio
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CHAPTERS = [path for path in NOTEBOOKS if not path.stem.startswith("00")]
DECLARED = {"playbook", "widgets"}
SECTIONS = "Predict, Explore, Run, Compare, By hand, Break it, Summary, Exercises, Sources"
"""What a chapter has after its question, in this order."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    """One of the notebooks."""
    return nbformat.read(request.param, as_version=4)


def code_of(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


def test_it_is_stored_without_outputs_and_widget_state(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert not cell.get("execution_count")
    assert "widgets" not in notebook.metadata


def test_it_begins_with_a_title_and_has_no_empty_cell(notebook: nbformat.NotebookNode) -> None:
    assert notebook.cells[0].source.startswith("# ")
    assert all(cell.source.strip() for cell in notebook.cells)


def test_code_cells_are_at_most_ten_lines(notebook: nbformat.NotebookNode) -> None:
    assert max(len(source.splitlines()) for source in code_of(notebook)) <= 10


def test_it_imports_only_what_the_project_declares(notebook: nbformat.NotebookNode) -> None:
    imported = set()
    for source in code_of(notebook):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            if isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    assert imported <= DECLARED | set(sys.stdlib_module_names)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_the_fixed_sections_in_order(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert "**The question.**" in cells[0].source
    assert ", ".join(re.findall(r"^## (.+)$", text, re.MULTILINE)) == SECTIONS
    summary = next(cell.source for cell in cells if cell.source.startswith("## Summary"))
    assert len(re.findall(r"^\d\. ", summary, re.MULTILINE)) == 5
    asked = re.findall(r'^pb\.check\("(\d\d\.\d)"', "\n".join(c.source for c in cells), re.MULTILINE)
    assert len(asked) >= 4
    assert {number[:2] for number in asked} == {path.stem[:2]}


@pytest.mark.dist
@pytest.mark.timeout(600)
def test_it_runs_top_to_bottom_within_the_size_of_saved_state(
    notebook: nbformat.NotebookNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAYBOOK_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]))
    client = NotebookClient(
        notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    asyncio.run(client.async_execute())
    errors = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert not errors
    state = json.dumps(notebook.metadata.get("widgets", {}))
    assert len(state.encode()) <= 200_000

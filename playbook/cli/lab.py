"""`playbook lab`: JupyterLab at the notebooks, on this machine only."""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import typer

import playbook

FIRST = "00_start.ipynb"
COPIED = "playbook-notebooks"


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(lab)


def lab(context: typer.Context) -> None:
    """Open JupyterLab at the notebooks.

    Other arguments are its own: --no-browser --port 8890.
    """
    command = lab_command(notebooks(), context.args)
    os.execve(command[0], command, surroundings(os.environ))  # so that Ctrl-C is JupyterLab's


def surroundings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for JupyterLab.

    A kernel called python3 in the user's own folder could be another Python: this one's comes first. Our
    settings answer the question about news from the internet, which would cover the first picture.
    """
    ours = str(Path(__file__).with_name("jupyter"))
    paths = (ours, environment.get("JUPYTER_CONFIG_PATH", ""))
    return {
        **environment,
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_PATH": os.pathsep.join(path for path in paths if path),
    }


def find_notebooks() -> Path | None:
    """Return the folder of the notebooks, of the checkout or of the installed package, or None."""
    package = Path(playbook.__file__).parent
    folders = (package.parent / "notebooks", package / "notebooks")
    return next((folder for folder in folders if (folder / FIRST).is_file()), None)


def notebooks() -> Path:
    """Return the folder to work in: the checkout's, or a copy of the installed notebooks right here.

    Raises
    ------
    ValueError
        If there are none.
    """
    found = find_notebooks()
    if found is None:
        raise ValueError("no notebooks found beside or inside the package; install playbook-bench again")
    installed = found.parent == Path(playbook.__file__).parent
    return copy_absent(found, Path.cwd() / COPIED) if installed else found


def copy_absent(source: Path, target: Path) -> Path:
    """Copy the notebooks that the target has not; what a reader has changed stays."""
    target.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(source.glob("*.ipynb")):
        if not (target / notebook.name).exists():
            (target / notebook.name).write_bytes(notebook.read_bytes())
    return target


def lab_command(folder: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that starts JupyterLab with our configuration, at `folder` unless told otherwise.

    Raises
    ------
    ValueError
        If JupyterLab is not installed for this Python.
    """
    if find_spec("jupyterlab") is None:
        raise ValueError(
            f"JupyterLab is not installed for {sys.executable}; "
            f"run: {sys.executable} -m pip install jupyterlab"
        )
    settings = Path(__file__).with_name("lab_config.py")
    chosen = any(argument.startswith("--ServerApp.root_dir") for argument in arguments)
    root = () if chosen else (f"--ServerApp.root_dir={folder}",)
    return [*(sys.executable, "-m", "jupyterlab", f"--config={settings}"), *root, *arguments]

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from playbook.cli import lab, lab_config


def test_a_checkout_is_opened_where_it_is():
    assert (lab.notebooks() / "00_start.ipynb").is_file()


def test_installed_notebooks_are_copied_but_never_over_a_readers_own(tmp_path):
    package, work = tmp_path / "package", tmp_path / "work"
    package.mkdir()
    (package / "00_start.ipynb").write_text("new")
    (package / "01_more.ipynb").write_text("more")
    work.mkdir()
    (work / "00_start.ipynb").write_text("mine")
    lab.copy_absent(package, work)
    assert (work / "00_start.ipynb").read_text() == "mine"
    assert (work / "01_more.ipynb").read_text() == "more"


def test_the_command_uses_this_python_our_settings_and_the_readers_arguments(tmp_path):
    command = lab.lab_command(tmp_path, ["--no-browser", "--port=8890"])
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert command[3].endswith("lab_config.py")
    assert command[4:] == [f"--ServerApp.root_dir={tmp_path}", "--no-browser", "--port=8890"]


def test_without_jupyterlab_the_error_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="JupyterLab is not installed .* -m pip install jupyterlab"):
        lab.lab_command(tmp_path, [])


def test_the_server_stays_on_loopback_and_opens_the_tour():
    part = SimpleNamespace
    c = part(ServerApp=part(), LabApp=part())
    lab_config.configure(c)
    assert c.ServerApp.ip == "127.0.0.1"
    assert c.ServerApp.allow_remote_access is False
    assert c.LabApp.default_url == "/lab/tree/00_start.ipynb"


def test_the_websocket_is_told_to_send_at_once_and_still_pings():
    calls = []

    class Protocol:
        def set_nodelay(self, value):
            calls.append(("nodelay", value))

        def start_pinging(self):
            calls.append("ping")
            return "pinging"

    assert lab_config.send_at_once(Protocol)
    assert Protocol().start_pinging() == "pinging"
    assert calls == [("nodelay", True), "ping"]


def test_a_websocket_that_refuses_nodelay_still_pings():
    class Protocol:
        def set_nodelay(self, value):
            raise OSError("closing")

        def start_pinging(self):
            return "pinging"

    assert lab_config.send_at_once(Protocol)
    assert Protocol().start_pinging() == "pinging"


def test_another_tornado_is_left_alone():
    assert not lab_config.send_at_once(type("Protocol", (), {}))


def test_the_tornado_installed_here_has_what_the_hook_needs():
    websocket = pytest.importorskip("tornado.websocket")
    assert hasattr(websocket.WebSocketProtocol13, "start_pinging")
    assert hasattr(websocket.WebSocketProtocol13, "set_nodelay")


def test_our_settings_come_before_those_of_the_environment(tmp_path):
    told = lab.surroundings({"JUPYTER_CONFIG_PATH": str(tmp_path), "HOME": "/somewhere"})
    ours, theirs = told["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert "fetchNews" in (Path(ours) / "labconfig" / "default_setting_overrides.json").read_text()
    assert theirs == str(tmp_path)
    assert told["HOME"] == "/somewhere"

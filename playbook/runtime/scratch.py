"""A pool's private folder: rendezvous files, and the logs that belong to no job."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import psutil

_PREFIX = "playbook-pool-"


def make_folder() -> Path:
    """Make a folder of mode 0700, named after this process so that a later one can tell if it is in use."""
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def sweep() -> None:
    """Remove the folders of this user's pools whose kernel was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not psutil.pid_exists(int(pid)) and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)

"""What a function sees around it: the kernel's working directory, its import path, the user's own modules."""

import importlib
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Self

_OUR_PACKAGES = ("playbook", "widgets", "torch", "numpy", "pandas")
_STANDARD_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Import path and working directory of the kernel at the time of a job."""

    sys_path: tuple[str, ...]
    working_directory: str

    @classmethod
    def here(cls) -> Self:
        """Those of this process."""
        here = str(Path.cwd())
        return cls(sys_path=tuple(path or here for path in sys.path), working_directory=here)

    def adopt(self) -> None:
        """Make a rank see what the kernel sees now, not what it saw when the rank started.

        The user's modules that were edited since this rank imported them are forgotten, so that the job
        imports them as they are now.
        """
        if sys.path != list(self.sys_path):
            sys.path[:] = self.sys_path
        if Path.cwd() != Path(self.working_directory):
            os.chdir(self.working_directory)
        importlib.invalidate_caches()
        _forget_edited()


_examined: set[str] = set()  # modules of this process that have been looked at
_users: dict[str, float] = {}  # those of the user among them, with the time of their last edit


def remember_modules() -> None:
    """Note which modules of the user have been imported since the last call, and their last edit."""
    for name in [name for name in sys.modules if name not in _examined]:
        _examined.add(name)
        if is_users(sys.modules[name]):
            _users[name] = _edited_at(sys.modules[name])


def _forget_edited() -> None:
    for name, edited in list(_users.items()):
        if name in sys.modules and _edited_at(sys.modules[name]) != edited:
            del sys.modules[name], _users[name]
            _examined.discard(name)


def is_users(module: ModuleType | None) -> bool:
    """Whether a module is the user's own, neither installed nor Python's: it may be edited at any time."""
    name, origin = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    if name == "__main__" or origin is None or name.split(".")[0] in _OUR_PACKAGES:
        return False
    installed = any(part in ("site-packages", "dist-packages") for part in Path(origin).parts)
    return not installed and not str(origin).startswith(_STANDARD_LIBRARY)


def _edited_at(module: ModuleType) -> float:
    try:
        return os.stat(str(module.__file__)).st_mtime
    except OSError:
        return 0.0

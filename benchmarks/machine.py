"""On what a table was measured."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path


def describe_machine() -> str:
    """One line: processor, cores, system, Python and torch, and how busy it was."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, torch {metadata.version('torch')}, load {load:.1f} at the start"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"

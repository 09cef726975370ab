"""What this machine bears: cores, memory, GPUs."""

import os
from importlib import import_module
from pathlib import Path

import psutil

RANK_BYTES = 350 * 2**20
"""Memory of an idle rank with torch and a gloo group, in bytes; an estimate on the safe side."""

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_V1 = _CGROUP / "memory"


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory_bytes() -> int:
    """Memory that new processes can have, in bytes: the machine's, within the container's limit."""
    free = psutil.virtual_memory().available
    limit, used = _cgroup_memory_bytes()
    return free if limit is None else max(0, min(free, limit - used))


def oom_kills() -> int:
    """How often the out-of-memory killer has run in this container; 0 where the system does not say."""
    for path in (_CGROUP / "memory.events", _CGROUP_V1 / "memory.oom_control"):
        for line in _read(path).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def visible_gpus() -> int:
    """CUDA devices that torch sees; torch is imported only where the driver is."""
    if not any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg")):
        return 0
    return import_module("torch").cuda.device_count()


def _cgroup_memory_bytes() -> tuple[int | None, int]:
    """Limit and reclaimed use of this container, in bytes; (None, 0) without a limit."""
    for folder, limit_name, used_name, cache in (
        (_CGROUP, "memory.max", "memory.current", "inactive_file"),
        (_CGROUP_V1, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, used = _read(folder / limit_name).strip(), _read(folder / used_name).strip()
        if limit.isdigit() and used.isdigit():
            stat = dict(
                line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line
            )
            return int(limit), int(used) - int(stat.get(cache, 0))
    return None, 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

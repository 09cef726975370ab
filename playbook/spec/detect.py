"""Describe the machine that this runs on: the only part of the description that looks at hardware."""

import os
from dataclasses import replace

from playbook.spec import presets
from playbook.spec.cluster import Cluster, Gpu, cluster, of_nodes

MARKS = {"b200": "b200", "h200": "h200", "h100": "h100", "a100-sxm4-40gb": "a100-40", "a100": "a100"}


def detect() -> Cluster:
    """Return one node with the GPUs of this machine, or its cores where there are none."""
    found = nvidia_gpus()
    if not found:
        return cores()
    name, memory_bytes = found[0]
    preset = preset_name(name)
    if preset is None:
        known = ", ".join(presets.names("gpus"))
        raise ValueError(f"GPU {name!r} has no preset ({known}); describe it with Gpu(...) and Cluster(...)")
    base = of_nodes(1, len(found), preset)
    return replace(
        base, gpu=replace(base.gpu, memory_bytes=memory_bytes), source=f"this machine: {name}; {base.source}"
    )


def preset_name(product: str) -> str | None:
    """Return the GPU preset that a driver's product name belongs to.

    Examples
    --------
    >>> preset_name("NVIDIA A100-SXM4-40GB")
    'a100-40'
    """
    lowered = product.lower()
    return next((preset for mark, preset in MARKS.items() if mark in lowered), None)


def nvidia_gpus() -> list[tuple[str, int]]:
    """Return name and memory in bytes of each NVIDIA GPU; none without driver or library."""
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [(name_of(pynvml, handle), pynvml.nvmlDeviceGetMemoryInfo(handle).total) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def name_of(pynvml: object, handle: object) -> str:
    """Return a device's product name; older bindings give bytes."""
    name = pynvml.nvmlDeviceGetName(handle)  # type: ignore[attr-defined]
    return name.decode() if isinstance(name, bytes) else name


def cores() -> Cluster:
    """Return the `laptop` preset with this machine's cores and memory."""
    import psutil

    base = cluster("laptop")
    here: Gpu = replace(base.gpu, memory_bytes=psutil.virtual_memory().total)
    return replace(
        base, gpus_per_node=os.cpu_count() or 1, gpu=here, source=f"this machine's cores; {base.source}"
    )

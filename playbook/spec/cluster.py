"""The machines: GPUs, the links between them, and presets with a source for each number."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playbook.spec import presets
from playbook.spec.rules import choice, flag, not_negative, positive, settle, text, whole

MIB = 2**20
PATTERN = re.compile(r"(?P<nodes>-?\d+)x(?P<gpus>-?\d+)-(?P<gpu>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A device.

    Parameters
    ----------
    name
        What to call it.
    memory_bytes
        Memory that its driver reports, in bytes.
    flops
        Dense peak by dtype, in operations a second.
    memory_bytes_per_s
        Peak memory bandwidth.
    source
        Where each number comes from.
    """

    name: str
    memory_bytes: int
    flops: Mapping[str, float] = field(hash=False)
    memory_bytes_per_s: float
    source: str = "given as numbers"

    def __post_init__(self) -> None:
        settle(self, name=text("gpu name", self.name), memory_bytes=whole("memory_bytes", self.memory_bytes))
        settle(self, flops={dtype: positive(f"flops[{dtype!r}]", rate) for dtype, rate in self.flops.items()})
        settle(self, memory_bytes_per_s=positive("memory_bytes_per_s", self.memory_bytes_per_s))

    def flops_of(self, dtype: str) -> float:
        """Return the dense peak for a dtype, in operations a second."""
        return self.flops[choice("dtype", dtype, self.flops)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link as one GPU sees it: seconds a message, and bytes a second in one direction."""

    latency_s: float
    bandwidth_bytes_per_s: float

    def __post_init__(self) -> None:
        settle(self, latency_s=not_negative("latency_s", self.latency_s))
        settle(self, bandwidth_bytes_per_s=positive("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s))

    def seconds(self, size_bytes: float) -> float:
        """Return the time of one message: latency + size / bandwidth."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal nodes of equal GPUs.

    Parameters
    ----------
    name
        What to call it.
    nodes, gpus_per_node
        How many.
    gpu
        The device.
    intra, inter
        Links inside a node and between nodes, per GPU and direction.
    shared
        Whether several ranks may share one device, as on a laptop's cores.
    source
        Where the numbers come from.
    """

    name: str
    nodes: int
    gpus_per_node: int
    gpu: Gpu
    intra: Link
    inter: Link
    shared: bool = False
    source: str = "given as numbers"

    def __post_init__(self) -> None:
        text("cluster name", self.name)
        for name in ("nodes", "gpus_per_node"):
            settle(self, **{name: whole(name, getattr(self, name))})
        flag("shared", self.shared)

    @property
    def gpus(self) -> int:
        """Devices in all."""
        return self.nodes * self.gpus_per_node

    def link(self, ranks: int) -> Link:
        """Return the slowest link of a group of that many neighbouring ranks."""
        return self.intra if whole("ranks", ranks) <= self.gpus_per_node else self.inter

    @classmethod
    def detect(cls) -> "Cluster":
        """Describe this machine: its NVIDIA GPUs, or its cores where there are none.

        Rates come from the preset of the GPU's kind; memory is what the driver reports here.
        """
        from playbook.spec.detect import detect

        return detect()


def cluster(name: "str | Cluster") -> Cluster:
    """Return a cluster by preset name or from the pattern NODESxGPUS-GPU, such as "64x8-h100".

    Raises
    ------
    ValueError
        If it is neither; the message lists the presets and the GPUs.

    Examples
    --------
    >>> cluster("64x8-h100").gpus
    512
    """
    if isinstance(name, Cluster):
        return name
    if not isinstance(name, str):
        raise TypeError(f"cluster={name!r} must be a name such as '2x8-h100'")
    found = presets.find("clusters", name)
    if found is not None:
        return _from_preset(found)
    match = PATTERN.fullmatch(name.strip().lower())
    if match is None:
        known = ", ".join(presets.names("clusters"))
        raise ValueError(
            f"cluster={name!r} is not known; use {known}, or NODESxGPUS-GPU such as 2x8-h100 with a GPU of "
            f"{', '.join(presets.names('gpus'))}"
        )
    return of_nodes(int(match["nodes"]), int(match["gpus"]), match["gpu"])


def of_nodes(nodes: int, gpus_per_node: int, gpu_name: str) -> Cluster:
    """Return nodes of a GPU preset, joined by the links that the preset names."""
    preset = presets.load("gpus", choice("gpu", gpu_name, presets.names("gpus")))
    return Cluster(
        name=f"{nodes}x{gpus_per_node}-{preset['name']}",
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpu=_gpu(preset),
        intra=_link(preset["intra"]),
        inter=_link(preset["inter"]),
        source=f"links: {preset['intra']['source']}; {preset['inter']['source']}",
    )


def smallest_cluster(world: int, gpu_name: str = "h100", gpus_per_node: int = 8) -> Cluster:
    """Return the fewest nodes that hold a world."""
    return of_nodes(-(-whole("world", world) // gpus_per_node), gpus_per_node, gpu_name)


def gpu(name: str) -> Gpu:
    """Return a GPU by preset name, ignoring case."""
    return _gpu(presets.load("gpus", choice("gpu", name, presets.names("gpus"))))


def _gpu(preset: Mapping[str, Any]) -> Gpu:
    memory, flops, bandwidth = preset["memory_mib"], preset["flops"], preset["memory_bytes_per_s"]
    sources = f"memory: {memory['source']}; flops: {flops['source']}; bandwidth: {bandwidth['source']}"
    return Gpu(
        name=preset["name"],
        memory_bytes=memory["value"] * MIB,
        flops=flops["value"],
        memory_bytes_per_s=bandwidth["value"],
        source=sources,
    )


def _link(preset: Mapping[str, Any]) -> Link:
    return Link(latency_s=preset["latency_s"], bandwidth_bytes_per_s=preset["bandwidth_bytes_per_s"])


def _from_preset(preset: Mapping[str, Any]) -> Cluster:
    gpu_name = preset["gpu"]
    if isinstance(gpu_name, str):
        base = of_nodes(preset["nodes"], preset["gpus_per_node"], gpu_name)
        return Cluster(
            name=preset["name"],
            nodes=base.nodes,
            gpus_per_node=base.gpus_per_node,
            gpu=base.gpu,
            intra=base.intra,
            inter=base.inter,
            source=f"{preset['source']}; {base.source}",
        )
    return Cluster(
        name=preset["name"],
        nodes=preset["nodes"],
        gpus_per_node=preset["gpus_per_node"],
        gpu=_gpu(gpu_name),
        intra=_link(preset["intra"]),
        inter=_link(preset["inter"]),
        shared=preset.get("shared", False),
        source=preset["source"],
    )

"""Scenarios as JSON, as Python code and as a command, and back from JSON."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from playbook.spec import presets
from playbook.spec.cluster import Cluster, Gpu, Link, cluster, smallest_cluster
from playbook.spec.degrees import check_has_experts
from playbook.spec.layout import Layout
from playbook.spec.model import Model, model
from playbook.spec.rules import known_keys
from playbook.spec.workload import Lora, Workload

if TYPE_CHECKING:
    from playbook.spec.scenario import Scenario

SCHEMA = 1
WANTED = "give what to_json() returned"
PARTS = ("schema", "model", "workload", "layout", "cluster", "framework")


def plain(value: Any) -> Any:
    """Turn a value object into what JSON can hold."""
    if is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def to_dict(scenario: "Scenario") -> dict[str, Any]:
    """Return a scenario as plain data, with the version of its form."""
    return {"schema": SCHEMA, **plain(scenario)}


def parse(text: str) -> dict[str, Any]:
    """Read the JSON text of a scenario, or say in one line why not."""
    try:
        content = json.loads(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"scenario is not JSON ({error}); {WANTED}") from None
    if not isinstance(content, dict):
        raise ValueError(
            f"scenario is a {type(content).__name__}, not an object; give what to_json() returned"
        )
    return content


def from_dict(content: Mapping[str, Any]) -> "Scenario":
    """Make a scenario from plain data; what is left out has its default, what is not known is refused."""
    from playbook.spec.scenario import Scenario

    known_keys("scenario", content, PARTS)
    if content.get("schema", SCHEMA) != SCHEMA:
        raise ValueError(f"schema={content['schema']} of a scenario is not read; use schema={SCHEMA}")
    if "model" not in content:
        raise ValueError("scenario has no 'model'; it needs at least that")
    given = content["model"]
    found = build(Model, given) if isinstance(given, Mapping) and "layers" in given else model(given)
    degrees = content.get("layout", {})
    check_has_experts(found, degrees.get("ep"), degrees.get("etp"))
    layout = build(Layout, degrees)
    workload = dict(content.get("workload", {}))
    if isinstance(workload.get("lora"), Mapping):
        workload["lora"] = build(Lora, workload["lora"])
    return Scenario(
        found,
        build(Workload, workload),
        layout,
        read_cluster(content.get("cluster"), layout),
        framework=content.get("framework", "textbook"),
    )


def read_cluster(content: Any, layout: Layout) -> Cluster:
    """Make a cluster from its name or its plain data; without either, the smallest one for the layout."""
    if content is None:
        return smallest_cluster(layout.world)
    if isinstance(content, str):
        return cluster(content)
    parts = {"gpu": Gpu, "intra": Link, "inter": Link}
    return build(Cluster, {k: build(parts[k], v) if k in parts else v for k, v in content.items()})


def build(kind: type, content: Mapping[str, Any]) -> Any:
    """Make a value object from a mapping of its fields."""
    known_keys(kind.__name__, content, [item.name for item in fields(kind)])
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    try:
        return kind(**values)
    except TypeError as error:
        if "missing" not in str(error):
            raise
        raise ValueError(f"{kind.__name__}: {str(error).split(') ')[-1]}") from None


def changed(record: Any) -> dict[str, Any]:
    """Return the fields of a value object that differ from those of a new one."""
    fresh = type(record)()
    pairs = {item.name: getattr(record, item.name) for item in fields(record)}
    if isinstance(record, Layout) and record.chunks == Layout(schedule=record.schedule).chunks:
        del pairs["chunks"]
    return {name: value for name, value in pairs.items() if value != getattr(fresh, name)}


def preset_of(given: Model) -> str | None:
    """Return the name of the preset that a model equals."""
    return given.name if given.name in presets.names("models") and model(given.name) == given else None


def named(given: Cluster) -> str | None:
    """Return the name that gives an equal cluster."""
    try:
        return given.name if cluster(given.name) == given else None
    except ValueError:
        return None


def as_python(scenario: "Scenario") -> str:
    """Return code that makes an equal scenario under the name `scenario`."""
    lines = ["import playbook as pb", "", "scenario = pb.Scenario("]
    if not (preset_of(scenario.model) and named(scenario.cluster)) or scenario.workload.lora:
        lines[1:1] = ["from playbook.spec import Cluster, Gpu, Link, Lora, Mla, Model, Moe"]
    preset = preset_of(scenario.model)
    lines.append(f"    {f'pb.model({preset!r})' if preset else repr(scenario.model)},")
    for record in (scenario.workload, scenario.layout):
        values = ", ".join(f"{name}={value!r}" for name, value in changed(record).items())
        lines.append(f"    pb.{type(record).__name__}({values}),")
    name = named(scenario.cluster)
    lines.append(f"    {f'pb.cluster({name!r})' if name else repr(scenario.cluster)},")
    lines += [f"    framework={scenario.framework!r},", ")", ""]
    return "\n".join(lines)


def as_command(scenario: "Scenario", command: str) -> str:
    """Return the command line; a model that is neither a preset nor a file cannot be named there."""
    preset = preset_of(scenario.model)
    source = preset or scenario.model.source
    if not preset and not source.endswith(".json"):
        raise ValueError(
            f"model {scenario.model.name!r} is neither a preset nor read from a file, so no "
            "command can name it; write its config.json and read that with pb.model(path)"
        )
    words = ["playbook", command, "--model", source]
    for record in (scenario.workload, scenario.layout):
        for name, value in changed(record).items():
            words += option(name, value)
    words += cluster_option(scenario)
    if scenario.framework != "textbook":
        words += ["--framework", scenario.framework]
    return shlex.join(words)


def cluster_option(scenario: "Scenario") -> list[str]:
    """Name the cluster, by its GPU alone where that gives the same one."""
    given = scenario.cluster
    if given == smallest_cluster(scenario.world):
        return []
    if given.gpu.name in presets.names("gpus") and given == smallest_cluster(scenario.world, given.gpu.name):
        return ["--gpu", given.gpu.name]
    if named(given) is None:
        raise ValueError(f"cluster {given.name!r} is no preset, so no command can name it; use as_python()")
    return ["--cluster", given.name]


def option(name: str, value: Any) -> list[str]:
    """Write one field as an option."""
    words = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{words}" if value else f"--no-{words}"]
    if isinstance(value, Lora):
        tables = "" if value.tables == "bf16" else f":{value.tables}"
        return [f"--{words}", f"{value.rank}:{','.join(value.targets)}{tables}"]
    if isinstance(value, tuple):
        return [f"--{words}", ",".join(map(str, value))]
    return [f"--{words}", str(value)]

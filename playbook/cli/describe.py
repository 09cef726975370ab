"""`playbook params`: the parameter counts of a model."""

import typer

from playbook.cli.options import Json, ModelName
from playbook.cli.output import write_json, write_pairs
from playbook.spec import model as find_model
from playbook.units import thousands


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(params)


def params(model: ModelName, json: Json = False) -> None:
    """Count the parameters of a model exactly."""
    found = find_model(model)
    counts = {
        "total": found.parameters,
        "active": found.active,
        "active_without_input_embedding": found.active_without_input_embedding,
    }
    if json:
        write_json(counts)
        return
    write_pairs(
        [
            ("model", found.name),
            ("source", found.source),
            *((name.replace("_", " "), f"{thousands(count)} parameters") for name, count in counts.items()),
            ("one layer", f"{thousands(found.layer_parameters)} parameters, {found.layers} layers"),
            ("KV cache", f"{thousands(found.kv_bytes_per_token(2))} B a token in BF16, one copy"),
        ]
    )
    if found.ignored_keys:
        typer.echo(f"not understood, and without a part in these numbers: {', '.join(found.ignored_keys)}")

"""`playbook doctor`: what works on this machine, and how to mend the rest."""

import typer

from playbook.cli.options import Json
from playbook.cli.output import write_json


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(doctor)


def doctor(json: Json = False) -> None:
    """Say what works here and how to mend the rest.

    Status 1 if ranks cannot run.
    """
    from playbook.cli import checks

    found = checks.all_checks()
    if json:
        write_json(
            {"ok": checks.ranks_can_run(found), "checks": [checks.as_row(finding) for finding in found]}
        )
    else:
        width = max(len(finding.name) for finding in found)
        for finding in found:
            typer.echo(f"{'ok' if finding.ok else 'no':<3} {finding.name:<{width}}  {finding.found}")
            if not finding.ok:
                typer.echo(f"    {'':<{width}}  for {finding.needed_for}: {finding.mend}")
    if not checks.ranks_can_run(found):
        raise typer.Exit(1)

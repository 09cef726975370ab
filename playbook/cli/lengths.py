"""Lengths that nobody typed: the default, or what the model has learned positions for."""

import typer

from playbook.spec import Model


def length(name: str, given: int | None, default: int, of: Model, others: int = 0) -> int:
    """Return the tokens of an option: those given, else the default as far as the model's positions go.

    Parameters
    ----------
    name, given
        The option, and its value; None where it was left out.
    default
        Tokens where nothing bounds them.
    of
        The model; one with rotary positions (`positions` is 0) bounds nothing.
    others
        Tokens of the same sequence besides these.
    """
    if given is not None:
        return given
    most = max(1, of.positions - others)
    if not of.positions or default <= most:
        return default
    typer.echo(
        f"note: {name}={most} instead of {default}: {of.name} has {of.positions} learned positions", err=True
    )
    return most

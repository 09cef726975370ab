"""Descriptors of controls: what the front end draws for a synced trait.

A trait becomes a control by its tag: ``Int(4).tag(sync=True, control=slider("Ranks", values=POWERS))``. The
trait holds the value and the help text; the descriptor says how it looks. Explorers replace options that
depend on other controls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Option = tuple[str | int, str] | tuple[str | int, str, str]
"""Value of the trait, the words shown for it and, in a drop-down list, the heading that it stands under."""


def slider(
    label: str, values: Iterable[float], show: str = "count", more: str = "", brief: str = ""
) -> dict[str, Any]:
    """Slider over `values` beside a field that takes any number.

    `show` is ``count``, ``bytes``, ``seconds`` or ``auto``, a count whose 0 is chosen by itself. Controls
    with the same `more` lie under a fold of that name, which lists their `brief` names.
    """
    return _folded(more, brief, kind="range", label=label, values=list(values), show=show)


def select(label: str, options: Sequence[Option], more: str = "", brief: str = "") -> dict[str, Any]:
    """Drop-down list of one choice."""
    return _folded(more, brief, kind="select", label=label, options=[list(option) for option in options])


def segments(label: str, options: Sequence[Option], more: str = "", brief: str = "") -> dict[str, Any]:
    """Row of two to four choices of which one holds."""
    return _folded(more, brief, kind="segments", label=label, options=[list(option) for option in options])


def checks(label: str, options: Sequence[Option]) -> dict[str, Any]:
    """Several choices, each on or off; the trait is the list of those that are on."""
    return {"kind": "checks", "label": label, "options": [list(option) for option in options]}


def picks(label: str, options: Sequence[Option]) -> dict[str, Any]:
    """The same as `checks` behind a drop-down that names those that are on."""
    return checks(label, options) | {"kind": "picks"}


def field(label: str, more: str = "", brief: str = "") -> dict[str, Any]:
    """One line of text."""
    return _folded(more, brief, kind="text", label=label)


def paste(label: str, more: str = "", brief: str = "") -> dict[str, Any]:
    """Several lines of text, taken over when pasted or left."""
    return _folded(more, brief, kind="paste", label=label)


def _folded(more: str, brief: str, **descriptor: Any) -> dict[str, Any]:
    return descriptor | ({"more": more} if more else {}) | ({"brief": brief} if brief else {})


def descriptors(
    traits: dict[str, Any], names: Iterable[str], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Descriptors of an explorer's controls, in the order in which its class names them.

    Parameters
    ----------
    traits
        The explorer's traits by name.
    names
        Names of the control traits in order.
    options
        Replacements by control name: another list of options or values, fields of the descriptor such as
        `idle` (why it is not in use, and cannot be changed) or `remark` (what it says while it can be),
        or None to leave a control out.
    """
    made = []
    for name in names:
        shown = dict(traits[name].metadata["control"])
        if name in options:
            if options[name] is None:
                continue
            given = options[name]
            if not isinstance(given, dict):
                given = {"values" if shown["kind"] == "range" else "options": given}
            shown |= given
        made.append({"name": name, "help": traits[name].help, **shown})
    return made

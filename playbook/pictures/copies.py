"""A scenario in the forms in which people take it away."""

from __future__ import annotations

from playbook.spec import Scenario


def scenario_copies(scenario: Scenario) -> dict[str, str]:
    """The scenario as Python, as command and as JSON; where a form cannot name it, why not."""
    made = {}
    for name, write in (
        ("python", scenario.as_python),
        ("command", lambda: scenario.as_command("memory")),
        ("json", scenario.to_json),
    ):
        try:
            made[name] = write()
        except ValueError as refused:
            made[name] = f"# {refused}"
    return made

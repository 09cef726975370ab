"""What a scenario may ask for and no strategy's code on ranks does, said before any rank is asked."""

from playbook.spec import Scenario
from playbook.spec.rules import choice

RECIPES = ("fp32", "bf16-fp32master", "bf16", "sgd", "fsdp2-mixed")


def refuse_unrunnable(strategy: str, scenario: Scenario, *, by_hand: bool, fault: str | None) -> None:
    """Refuse what a run on ranks does not do, whatever the strategy.

    Raises
    ------
    ValueError
        With what would work.
    """
    workload, model = scenario.workload, scenario.model
    choice("recipe of a run on ranks", workload.recipe, RECIPES)
    refuse(
        bool(model.unlike_llama),
        f"model {model.name} has {', '.join(model.unlike_llama)}, which the reference transformer does not "
        "compute; use a dense kind of Llama, Mistral or Qwen, such as toy-15m",
    )
    refuse(
        fault is not None and not by_hand,
        f"fault={fault!r} is planted in the by-hand code; use by='hand'",
    )
    refuse(
        workload.attention == "math",
        "attention='math': ranks run whatever kernel torch chooses; use attention='flash', or trace it",
    )
    refuse(
        workload.recipe == "fsdp2-mixed" and (strategy != "fsdp2" or by_hand),
        "recipe='fsdp2-mixed' is FSDP2's own mixed precision; use fsdp2 by='library', or recipe='fp32'",
    )


def refuse(wrong: bool, text: str) -> None:
    """Raise ValueError with a text if something is wrong."""
    if wrong:
        raise ValueError(text)

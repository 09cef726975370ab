"""Fields that a scenario may carry and no program models yet: each is refused by name, with what to use
instead."""

from playbook.frameworks import policies, policy
from playbook.predict.extras import elsewhere, refuse_extras, refuse_rule
from playbook.spec import Scenario


def refuse_unbuilt(s: Scenario, others: bool = True) -> None:
    """Refuse a scenario whose program would leave a field out, and what its framework does not do.

    Parameters
    ----------
    s
        The scenario.
    others
        Whether to name the frameworks that would do it, for where another one is an answer.

    Raises
    ------
    TypeError
        If it is no scenario.
    ValueError
        Naming the field, its value and what works.
    """
    if not isinstance(s, Scenario):
        raise TypeError(
            f"a prediction takes a Scenario, not a {type(s).__name__}; use pb.Scenario(model, ...)"
        )
    if s.framework not in policies():
        raise ValueError(
            f"framework={s.framework!r} is not built yet; use one of {', '.join(sorted(policies()))}"
        )
    refuse_layout(s)
    refuse_extras(s, others)
    try:
        policy(s.framework).refuse(s)
        refuse_rule(s.framework, s)
    except ValueError as error:
        raise ValueError(f"{error}{elsewhere(s) if others else ''}") from None


def refuse_layout(s: Scenario) -> None:
    """Refuse layouts that no program models, or that would share nothing."""
    layout = s.layout
    if layout.dp_replicate > 1 and layout.zero == 0:
        raise ValueError(
            f"dp_replicate={layout.dp_replicate} with zero=0: replicas of what is not shared are the dp "
            "ranks themselves; use dp_replicate=1, or zero=3 (HSDP)"
        )

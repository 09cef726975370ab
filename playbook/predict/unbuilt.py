"""Fields that a scenario may carry and no program models yet: each is refused by name, with what to use
instead."""

from playbook.frameworks import policies, policy
from playbook.spec import Scenario


def refuse_unbuilt(s: Scenario) -> None:
    """Refuse a scenario whose program would leave a field out, and what its framework does not do.

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
    layout, work = s.layout, s.workload
    fields = (
        (layout.cp != 1, f"cp={layout.cp}", "context parallelism", "cp=1"),
        (layout.ep != 1, f"ep={layout.ep}", "expert parallelism", "ep=1"),
        (layout.etp != 1, f"etp={layout.etp}", "tensor parallelism inside experts", "etp=1"),
        (
            layout.dp_replicate != 1,
            f"dp_replicate={layout.dp_replicate}",
            "hybrid sharding",
            "dp_replicate=1",
        ),
        (work.offload != "none", f"offload={work.offload!r}", "offloading", "offload='none'"),
        (work.lora is not None, f"lora={work.lora}", "training adapters", "lora=None"),
        (work.loss != "eager", f"loss={work.loss!r}", "a loss in pieces", "loss='eager'"),
    )
    for given, what, name, works in fields:
        if given:
            raise ValueError(f"{what}: {name} is not built yet; use {works}")
    policy(s.framework).refuse(s)

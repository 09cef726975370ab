"""What a framework may have beyond plain recipes, the eager loss and state on the device; who has not refuses
by name."""

from playbook.frameworks import policies, policy
from playbook.spec import Scenario
from playbook.spec.adapters import adapters

RECIPES = ("adam8bit", "muon", "fp8", "lora", "qlora")
"""Recipes whose bytes differ by tensor; each is an extra of its own."""


def wanted(s: Scenario) -> list[tuple[str, str, str]]:
    """Return the extras that a scenario needs: each with the field that asks for it and what does without.

    Examples
    --------
    >>> from playbook.spec import Workload, model
    >>> wanted(Scenario(model("toy-15m"), Workload(loss="chunked")))
    [('chunked loss', "loss='chunked'", "loss='eager'")]
    """
    work = s.workload
    stem = work.recipe.partition("-")[0]
    found = []
    if stem in RECIPES:
        found.append((stem, f"recipe={work.recipe!r}", "recipe='bf16-fp32master'"))
    if work.lora is not None and stem not in ("lora", "qlora"):
        found.append(("adapters", f"lora={work.lora}", "lora=None"))
    if work.loss != "eager":
        found.append((f"{work.loss} loss", f"loss={work.loss!r}", "loss='eager'"))
    if work.offload != "none":
        found.append(("offloading", f"offload={work.offload!r}", "offload='none'"))
    return found


def refuse_extras(s: Scenario) -> None:
    """Refuse what a scenario asks of a framework that does not have it.

    Raises
    ------
    ValueError
        Naming the field, its value, the frameworks that have it and what works here.
    """
    if s.workload.offload == "nvme":
        raise ValueError(
            "offload='nvme': what is staged on the host between device and disk is not modelled; "
            "use offload='cpu', whose host_bytes would be on the disk"
        )
    if s.workload.lora is not None:
        adapters(s.model, s.workload.lora)  # refuses names of no projection
    own = policy(s.framework).extras
    for extra, given, works in wanted(s):
        if extra not in own:
            having = [name for name in sorted(policies()) if extra in policy(name).extras]
            raise ValueError(
                f"{given} is not modelled for framework={s.framework!r}; use {works}, "
                f"or framework={' or '.join(repr(name) for name in having)}"
            )

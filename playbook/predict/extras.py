"""What a framework may have beyond plain recipes, the eager loss and state on the device; who has not refuses
by name."""

import math
from dataclasses import replace

from playbook.frameworks import policy
from playbook.schedules import plans
from playbook.schedules.registry import check_framework
from playbook.spec import Layout, Scenario
from playbook.spec.adapters import adapters
from playbook.spec.degrees import ranks_for_experts
from playbook.spec.scenario import PREDICTED, check_tensor_parallel
from playbook.spec.vocabulary import pads_vocabulary

RECIPES = ("adam8bit", "muon", "fp8", "lora", "qlora")
"""Recipes whose bytes differ by tensor; each is an extra of its own."""

PLAIN = ("bf16-fp32master", "bf16-fp32grad", "fsdp2-mixed", "fp32")
"""Recipes that stand in for them, the one that most frameworks have first."""

RULES = {
    "folded": "deals experts out over ranks of dp, cp and tp, so that ep is no factor of the world",
    "independent": "has an axis for experts, so that ep is a factor of the world",
}
"""What a framework does with the ranks of experts, by its product rule."""


def wanted(s: Scenario) -> list[tuple[str, str, str]]:
    """Return the extras that a scenario needs: each with the field that asks for it and what does without;
    of a recipe that is for `plain_recipe` to say.

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
        found.append((stem, f"recipe={work.recipe!r}", ""))
    if work.lora is not None and stem not in ("lora", "qlora"):
        found.append(("adapters", f"lora={work.lora}", "lora=None"))
    if work.loss != "eager":
        found.append((f"{work.loss} loss", f"loss={work.loss!r}", "loss='eager'"))
    if work.offload != "none":
        found.append(("offloading", f"offload={work.offload!r}", "offload='none'"))
    return found


def plain_recipe(s: Scenario) -> str:
    """Return the field of a plain recipe that the scenario's framework takes.

    Raises
    ------
    ValueError
        With what else the framework refuses, if it takes none.
    """
    refused = []
    for name in PLAIN:
        words = refusal(s.framework, replace(s, workload=replace(s.workload, recipe=name)))
        if not words:
            return f"recipe={name!r}"
        refused.append(words)
    raise ValueError(next((words for words in refused if not words.startswith("recipe=")), refused[0]))


def refusal(framework: str, s: Scenario) -> str:
    """Return a framework's words against a scenario, of whichever framework it is; empty if it has none."""
    try:
        policy(framework).refuse(s)
        refuse_rule(framework, s)
        check_schedule(framework, s)
        if pads_vocabulary(s.framework) and not pads_vocabulary(framework):
            check_tensor_parallel(s.model, s.layout)
    except ValueError as error:
        return str(error)
    return ""


def refuse_rule(framework: str, s: Scenario) -> None:
    """Refuse ranks of experts that a framework does not have, for a scenario of whichever framework."""
    layout, (rule, *others) = s.layout, policy(framework).ep_rules
    if layout.ep > 1 and layout.ep_rule not in (rule, *others):
        raise ValueError(
            f"ep_rule={layout.ep_rule!r} with ep={layout.ep}: framework {framework!r} {RULES[rule]}; use "
            f"ep_rule={rule!r}{room_for_experts(layout) if rule == 'folded' else ''}"
        )


def room_for_experts(layout: Layout) -> str:
    """Say with which dp experts can be dealt out over ranks that exist, where they cannot with this one."""
    unit = math.lcm(ranks_for_experts(layout), layout.dp_replicate)
    return "" if layout.dp % unit == 0 else f" with dp a multiple of {unit}"


def check_schedule(framework: str, s: Scenario) -> None:
    """Refuse a schedule that a framework does not have, for a scenario of whichever framework it is."""
    layout = s.layout
    if layout.pp > 1 and layout.schedule in plans():
        check_framework(plans()[layout.schedule], framework, layout.pp, s.microbatches, layout.chunks or 1)


def elsewhere(s: Scenario) -> str:
    """Name the frameworks that do what a scenario asks, for the end of a refusal; empty if none does.

    Examples
    --------
    >>> from playbook.spec import Layout, model
    >>> elsewhere(Scenario(model("mixtral-8x7b"), layout=Layout(dp=8, zero=2), framework="megatron"))
    ", or framework='textbook' or 'deepspeed'"
    """
    needs = {extra for extra, _, _ in wanted(s)}
    having = [name for name in PREDICTED if needs <= policy(name).extras and not refusal(name, s)]
    *first, last = [repr(name) for name in having] or [""]
    named = f"{', '.join(first)} or {last}" if first else last
    return f", or framework={named}" if last else ""


def refuse_extras(s: Scenario, others: bool = True) -> None:
    """Refuse what a scenario asks of a framework that does not have it.

    Parameters
    ----------
    s
        The scenario.
    others
        Whether to name the frameworks that have it.

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
            raise ValueError(extra_refusal(s, given, works) + (elsewhere(s) if others else ""))


def extra_refusal(s: Scenario, given: str, works: str) -> str:
    """Return the words against an extra; those against the rest of the scenario if no recipe would do."""
    try:
        works = works or plain_recipe(s)
    except ValueError as error:
        return str(error)
    return f"{given} is not modelled for framework={s.framework!r}; use {works}"

"""What the tracer runs: scenarios of the reference transformer under torch's own DDP, FSDP2 and DTensor."""

from playbook.frameworks import torch as torch_policy
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.spec import Scenario

FRAMEWORKS = ("torch", "textbook")


def check_traceable(s: Scenario) -> None:
    """Refuse what the tracer cannot run.

    Raises
    ------
    ValueError
        With what it could run.
    """
    if s.framework not in FRAMEWORKS:
        raise ValueError(
            f"framework={s.framework!r}: the tracer runs this library's reference transformer; use framework="
            f"{' or '.join(map(repr, FRAMEWORKS))}"
        )
    refuse_unbuilt(s)
    torch_policy.refuse(s, elsewhere="")  # a trace is of the real code, whatever the formula's framework
    layout, model = s.layout, s.model
    if layout.pp > 1:
        raise ValueError(f"pp={layout.pp}: pipelines are not traced yet; use pp=1, or run 'pp' on real ranks")
    if layout.zero in (1, 2) and layout.dp > 1:
        raise ValueError(f"zero={layout.zero}: not traced; use zero=0 (DDP) or zero=3 (FSDP2)")
    if layout.zero == 3 and layout.dp == 1:
        raise ValueError("zero=3 with dp=1: there is nothing to share out; use dp=2 or more, or zero=0")
    if layout.tp > 1 and layout.dp > 1 and layout.zero == 0:
        raise ValueError(
            f"dp={layout.dp} x tp={layout.tp} with zero=0: DistributedDataParallel does not take DTensor's "
            "parameters; use zero=3"
        )
    if layout.tp > model.kv_heads:
        raise ValueError(
            f"tp={layout.tp} but {model.name} has {model.kv_heads} key-value heads, which DTensor splits "
            f"evenly; use tp={model.kv_heads} or less"
        )
    if model.tied and layout.tp > 1 and layout.zero == 3 and layout.dp > 1:
        raise ValueError(
            "tied embeddings with tp and zero=3 are not traced; use tp=1, zero=0 or an untied model"
        )

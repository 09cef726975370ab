"""What the tracer runs: scenarios of the reference transformer under torch's own DDP, ZeRO, FSDP2, DTensor
and pipelining, alone and inside each other."""

from playbook.frameworks import torch as torch_policy
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.spec import Scenario
from playbook.strategies import plan, refuse_predicted_layout

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
    refuse_predicted_layout(s.layout)
    refuse_unbuilt(s, others=False)
    torch_policy.refuse(s)  # a trace is of the real code, whatever the formula's framework
    refuse_pipeline(s)
    if s.workload.loss != "eager":
        raise ValueError(
            f"loss={s.workload.loss!r}: the reference transformer computes all logits at once; "
            "use loss='eager'"
        )
    layout, model = s.layout, s.model
    if layout.tp > model.kv_heads:
        raise ValueError(
            f"tp={layout.tp} but {model.name} has {model.kv_heads} key-value heads, which DTensor splits "
            f"evenly; use tp={model.kv_heads} or less"
        )


def refuse_pipeline(s: Scenario) -> None:
    """Refuse pipelines that torch's library does not run, or not with these stages."""
    layout, work = s.layout, s.workload
    if layout.pp == 1:
        return
    plan("pp").refuse_run(s, False)
    if layout.dp > 1 and work.gradient_sync == "every" and s.microbatches > 1:
        raise ValueError(
            f"pp={layout.pp} x dp={layout.dp} with gradient_sync='every': torch's schedules reduce gradients "
            "behind the last micro-batch; use gradient_sync='last'"
        )

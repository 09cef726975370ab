"""Pipelines that framework "torch" predicts and torch's library does not run: said in the note of each."""

from playbook.predict.orders import splits_backward
from playbook.spec import Scenario


def not_run(s: Scenario) -> str:
    """What of a scenario torch.distributed.pipelining does not run, in words; else empty.

    Its stages have no tied table and reduce gradients behind the last micro-batch only. Where backward is
    split they lose gradients of weights that FSDP2 frees after forward, and DDP does not reduce (torch 2.13).
    """
    layout = s.layout
    if s.framework != "torch" or layout.pp == 1:
        return ""
    if s.model.tied:
        return (
            f"torch's pipelines do not add up the gradient of a tied table as {s.model.name} has, so that no "
            "trace with pp can check this; use an untied model"
        )
    if layout.dp > 1 and s.workload.gradient_sync == "every" and s.microbatches > 1:
        return (
            "torch's pipelines reduce gradients behind the last micro-batch, so that no trace can check "
            "gradient_sync='every' with pp and dp; use gradient_sync='last'"
        )
    return lost_gradients(s) if splits_backward(layout.schedule) else ""


def lost_gradients(s: Scenario) -> str:
    """What of data parallelism does not work in torch where a schedule splits backward."""
    layout = s.layout
    split = f"schedule={layout.schedule}, which splits backward"
    if layout.zero == 3 and layout.reshard:
        return (
            f"torch's pipelines lose the gradients of weights that FSDP2 frees after forward under {split}; "
            "use reshard=False (--no-reshard)"
        )
    if layout.zero < 3 and layout.dp > 1:
        return (
            f"torch's pipelines do not let DDP reduce gradients under {split}; use zero=3 with reshard=False "
            "(--zero 3 --no-reshard)"
        )
    return ""

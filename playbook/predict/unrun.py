"""Pipelines that framework "torch" predicts and torch's library does not run: said in the note of each."""

from playbook.predict.orders import splits_backward
from playbook.spec import Scenario


def not_run(s: Scenario) -> str:
    """What of a scenario torch.distributed.pipelining does not run, in words; else empty.

    Its stages have no tied table, reduce gradients behind the last micro-batch only, and lose those of
    weights that FSDP2 frees after forward where backward is split (torch 2.13).
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
    if layout.zero == 3 and layout.reshard and splits_backward(layout.schedule):
        return (
            f"torch's pipelines lose the gradients of weights that FSDP2 frees after forward under schedule="
            f"{layout.schedule}, which splits backward; use reshard=False (--no-reshard)"
        )
    return ""

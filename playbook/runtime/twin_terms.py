"""What a twin's peak is made of: one more step, with a ledger of every storage that Python sees."""

from typing import Any

import torch
from torch import nn

from playbook.runtime.action_owners import ActionOwners
from playbook.runtime.memory import fitted, tracked_memory
from playbook.runtime.record import Record, record_step, recording
from playbook.runtime.trace_step import open_ledger
from playbook.tables import TERMS


def terms_of_step(step: Any, peak_bytes: int, reserved_bytes: int) -> dict[str, Any]:
    """Take one more step and return terms at the peak, the module at work there, and the driver's context.

    Parameters
    ----------
    step
        A `TwinStep`.
    peak_bytes, reserved_bytes
        What the allocator counted: what the ledger did not see of it is workspace.
    """
    memory = tracked_memory(record(step))
    context = context_bytes(step.meter.device)
    terms = {
        **fitted(memory.terms, peak_bytes),
        "reserved_unused": reserved_bytes - peak_bytes,
        "context": context,
    }
    rows = [{"term": term, "bytes": terms[term]} for term in TERMS if terms.get(term)]
    return {"terms": rows, "op": memory.op, "context_bytes": context}


def record(step: Any) -> Record:
    """Record a step, by its actions where it has them."""
    ready = step.ready
    ledger = open_ledger(ready, step.meter.device.type)
    if not ready.part.by_action:
        return record_step(step.take, ready.part.module, ready.axes, ledger=ledger)
    assert isinstance(ready.part.module, nn.ModuleDict)
    owners = ActionOwners(ready.part.module, ledger)
    with recording(owners, ready.axes, ledger) as recorder:
        step.take(owners)
    return Record(rows=tuple(recorder.rows), places=tuple(recorder.places), ledger=ledger)


def context_bytes(device: torch.device) -> int:
    """What this and other processes took from a GPU beside this allocator; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return max(0, total - free - torch.cuda.memory_reserved(device))

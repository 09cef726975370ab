"""Playbook: a lab bench for LLM parallelism.

Importing it loads neither torch nor the widgets; a name is loaded from its home when it is first asked for.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

HOMES = {
    "Model": "playbook.spec",
    "Moe": "playbook.spec",
    "Mla": "playbook.spec",
    "model": "playbook.spec",
    "Workload": "playbook.spec",
    "Layout": "playbook.spec",
    "Cluster": "playbook.spec",
    "cluster": "playbook.spec",
    "Recipe": "playbook.spec",
    "Lora": "playbook.spec",
    "adapters": "playbook.spec.adapters",
    "Serving": "playbook.spec",
    "Scenario": "playbook.spec",
    "program": "playbook.predict",
    "training_memory": "playbook.predict",
    "traffic": "playbook.predict",
    "kv_cache": "playbook.predict.kv_cache",
    "KvLayers": "playbook.predict.kv_layers",
    "inference_memory": "playbook.predict.inference",
    "fit": "playbook.predict.fit",
    "explain_allocation": "playbook.predict.explain",
    "step_time": "playbook.predict",
    "flops_per_token": "playbook.predict.flops",
    "stage_weights": "playbook.predict.stage_weights",
    "schedule": "playbook.program.schedule",
    "find_schedule": "playbook.planner",
    "cut_stages": "playbook.planner",
    "StageTimes": "playbook.planner",
    "best_microbatches": "playbook.planner",
    "measure_stage_times": "playbook.runtime.stage_times",
    "collective": "playbook.collectives",
    "collective_costs": "playbook.collectives",
    "Pool": "playbook.runtime.pool",
    "RankFailed": "playbook.runtime.errors",
    "JobCancelled": "playbook.runtime.errors",
    "PoolClosed": "playbook.runtime.errors",
    "Run": "playbook.runtime.run",
    "load_run": "playbook.runtime.run",
    "trace": "playbook.runtime.trace",
    "twin": "playbook.runtime.twin",
    "recorded_twins": "playbook.recorded",
    "compare": "playbook.compare",
    "source": "playbook.lessons",
    "check": "playbook.lessons",
}

__all__ = sorted(HOMES)  # noqa: PLE0605  # the table is the one list to edit


class _Namespace(ModuleType):
    """This package's namespace, in which a public name is what the table says, never the module of that name.

    Importing `playbook.program` would otherwise put the package in the place of the function `program`.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in HOMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'playbook' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(HOMES[name]), name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


sys.modules[__name__].__class__ = _Namespace

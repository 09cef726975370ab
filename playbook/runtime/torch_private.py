"""The parts of torch that have no public name, taken in one place.

Versions 2.11 to 2.13 carry all of them. A part that a later torch moves or drops is named by `missing`, and
only what uses it fails.

| part | where it lies | used for |
| --- | --- | --- |
| current_node | torch._C._current_autograd_node | the owner of a backward operation |
| next_sequence_number | torch.autograd._get_sequence_nr | the autograd nodes that a module's forward made |
| DispatchMode | torch.utils._python_dispatch.TorchDispatchMode | seeing every operation |
| is_wrapper_type | torch.utils._python_dispatch | letting DTensor unfold before counting |
| FakeTensorMode | torch._subclasses.fake_tensor | tensors without data |
| real_tensors | torch._subclasses.fake_tensor | the few tensors of a trace that need data |
| without_modes | torch.utils._python_dispatch | keeping DTensor's own dry runs out of a trace |
| ShardingPropagator | torch.distributed.tensor._sharding_prop | where those dry runs are |
| forget_shardings | torch.distributed.tensor.debug | what DTensor remembers of meshes that are gone |
| FakeStore | torch.testing._internal.distributed.fake_pg | a process group without processes |
| MemTracker | torch.distributed._tools.mem_tracker | a second opinion on memory, in tests |
| FSDPMemTracker | torch.distributed._tools.fsdp2_mem_tracker | the same under FSDP2 |
| ZeroOptimizer | torch.distributed.optim | public, but its package warns of itself |
| whole_to_local | torch.distributed.tensor.parallel.ddp | letting DDP average the parts of split weights |
| PipelineRuntime | torch.distributed.pipelining.schedules | running an order of one's own by library |
| post_messages | torch.distributed.pipelining.schedules | which work carries which message |
| await_messages | torch.distributed.pipelining.schedules | when the library really waits |
"""

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed import ProcessGroup

SUPPORTED = ((2, 11), (2, 13))
"""First and last minor version of torch that was tried."""

PARTS = {
    "current_node": ("torch._C", "_current_autograd_node"),
    "next_sequence_number": ("torch.autograd", "_get_sequence_nr"),
    "DispatchMode": ("torch.utils._python_dispatch", "TorchDispatchMode"),
    "is_wrapper_type": ("torch.utils._python_dispatch", "is_traceable_wrapper_subclass_type"),
    "FakeTensorMode": ("torch._subclasses.fake_tensor", "FakeTensorMode"),
    "real_tensors": ("torch._subclasses.fake_tensor", "unset_fake_temporarily"),
    "without_modes": ("torch.utils._python_dispatch", "_disable_current_modes"),
    "ShardingPropagator": ("torch.distributed.tensor._sharding_prop", "ShardingPropagator"),
    "forget_shardings": ("torch.distributed.tensor.debug", "_clear_sharding_prop_cache"),
    "FakeStore": ("torch.testing._internal.distributed.fake_pg", "FakeStore"),
    "MemTracker": ("torch.distributed._tools.mem_tracker", "MemTracker"),
    "FSDPMemTracker": ("torch.distributed._tools.fsdp2_mem_tracker", "FSDPMemTracker"),
    "ZeroOptimizer": ("torch.distributed.optim", "ZeroRedundancyOptimizer"),
    "whole_to_local": ("torch.distributed.tensor.parallel.ddp", "_pre_dp_module_transform"),
    "PipelineRuntime": ("torch.distributed.pipelining.schedules", "_PipelineScheduleRuntime"),
    "post_messages": ("torch.distributed.pipelining.schedules", "_batch_p2p"),
    "await_messages": ("torch.distributed.pipelining.schedules", "_wait_batch_p2p"),
}
"""Our name of each part, with the module and the attribute where torch keeps it."""

RENAMED_COLLECTIVES = r".*(all_gather_into_tensor|reduce_scatter_tensor|all_gather_tensor).*"
"""torch 2.13 deprecates these names; the new ones do not exist in 2.11."""

VIEW_OUTPUT = "FSDP2-wrapped module .* returned a view tensor"
"""torch 2.13 warns of this since an operation in place would lose a hook; nothing here works in place."""

_NO_SEQUENCE = 2**63
"""Nodes that accumulate gradients carry the largest number there is, to run first."""


QUEUE_UNTIL = (2, 12)
"""Last version whose pipelines put all messages of a rank on one stream: `_batch_p2p` hands even a lone one
to `batch_isend_irecv`. 2.11 does and 2.13 does not; 2.12 was not looked at and is taken to be like 2.11."""


def one_message_queue(version: str = torch.__version__) -> bool:
    """Tell whether the library's pipelines send and receive in one queue a rank, in order.

    Examples
    --------
    >>> one_message_queue("2.11.0+cu130"), one_message_queue("2.13.0")
    (True, False)
    """
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) <= QUEUE_UNTIL


def part(name: str) -> Any:
    """Return a private part of torch.

    Raises
    ------
    ValueError
        If this torch has it no more; the text names the part, where it was and the versions that have it.
    """
    module, attribute = PARTS[name]
    try:
        with warnings.catch_warnings(
            action="ignore", category=DeprecationWarning
        ):  # torch's, of its own code
            return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as gone:
        first, last = (".".join(map(str, version)) for version in SUPPORTED)
        raise ValueError(
            f"torch {torch.__version__} has no {module}.{attribute}; versions {first} to {last} have it"
        ) from gone


def missing(parts: dict[str, tuple[str, str]] = PARTS) -> list[str]:
    """Name the parts, as `module.attribute`, that this torch does not have."""

    def present(module: str, attribute: str) -> bool:
        try:
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                return hasattr(importlib.import_module(module), attribute)
        except ImportError:
            return False

    return [f"{module}.{attribute}" for module, attribute in parts.values() if not present(module, attribute)]


DispatchMode: Any = part("DispatchMode")
is_wrapper_type: Callable[[type], bool] = part("is_wrapper_type")
next_sequence_number: Callable[[], int] = part("next_sequence_number")
_current_node: Callable[[], Any] = part("current_node")


@contextmanager
def watched_messages(
    posted: Callable[[Any, Any], None], waiting: Callable[[Any], AbstractContextManager[None]]
) -> Iterator[None]:
    """Let torch's pipelining tell what it posts and enclose what it waits for, while the context is open.

    Parameters
    ----------
    posted
        Gets the messages that were posted together and the works that carry them.
    waiting
        Makes, of the works that are about to be waited for, the context in which that happens.
    """
    post, wait = part("post_messages"), part("await_messages")

    def posting(messages: Any, *args: Any, **options: Any) -> Any:
        works = post(messages, *args, **options)
        posted(messages, works)
        return works

    def awaiting(works: Any) -> None:
        with waiting(works):
            wait(works)

    module, post_name = PARTS["post_messages"]
    with (
        patch.object(importlib.import_module(module), post_name, posting),
        patch.object(importlib.import_module(module), PARTS["await_messages"][1], awaiting),
    ):
        yield


def sequence_number(node: Any) -> int | None:
    """Number of an autograd node, or None for one that accumulates a gradient."""
    number = node._sequence_nr()
    return number if number < _NO_SEQUENCE else None


def current_node() -> Any | None:
    """Return the autograd node whose backward runs in this thread, or None."""
    return _current_node()


def group_name(argument: Any) -> str | None:
    """Name of the process group that an operation got as `argument`, or None if it is no group."""
    if isinstance(argument, str):
        return argument
    if isinstance(argument, ProcessGroup):
        return argument.group_name
    if isinstance(argument, torch.ScriptObject):
        try:
            return ProcessGroup.unbox(argument).group_name
        except RuntimeError:
            return None
    return None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what torch's own code says about itself: renamed collectives, and outputs that are views."""
    with warnings.catch_warnings():
        for message in (RENAMED_COLLECTIVES, VIEW_OUTPUT):
            warnings.filterwarnings("ignore", message=message)
        yield


def quiet_renamed_collectives() -> None:
    """Silence the deprecation of collective names that torch itself still calls, for this whole process."""
    warnings.filterwarnings("ignore", message=RENAMED_COLLECTIVES)

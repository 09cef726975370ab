"""Where an operation belongs: micro-batch, phase and module, found from outside, in unchanged code.

Forward: the stack of modules that hooks keep. Backward: the running autograd node has a number, and hooks
noted which numbers each module's forward gave out. Recompute: a module is on the stack while a node runs.
FSDP says in its profiler labels which unit it gathers or reduces.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from playbook.runtime.torch_private import current_node, next_sequence_number, sequence_number

WRAPPERS = frozenset(("_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module", "module"))
"""Parts of a module path that a wrapper adds."""

CORE = "core"
"""Module without weights inside attention, for the sake of checkpoints; its rows are attention's."""

_UNIT = re.compile(r"FSDP::(?P<work>\w+)(?: for (?P<next>[\w.]+))?(?: \((?P<unit>.*)\))?")
_BACKWARD_WORK = ("pre_backward", "post_backward", "backward_prefetch", "root_post_backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an operation belongs.

    Parameters
    ----------
    microbatch, phase, owner
        The first three parts of an id.
    aside
        Work that no program names, unless it communicates: gradient accumulation, FSDP's own copies.
    outside
        Outside every module and unit: the loss, data parallelism's buckets, the script's own work.
    accumulates
        In a node that accumulates a parameter's gradient.
    """

    microbatch: int
    phase: str
    owner: str
    aside: bool = False
    outside: bool = False
    accumulates: bool = False


def owner_name(path: str) -> str:
    """Module path without the parts that wrappers add, and without the attention core's own.

    Examples
    --------
    >>> owner_name("module.layers.3._checkpoint_wrapped_module.mlp")
    'layers.3.mlp'
    >>> owner_name("layers.3.self_attn.core")
    'layers.3.self_attn'
    """
    parts = [part for part in path.split(".") if part not in WRAPPERS]
    return ".".join(parts[:-1] if parts[-1:] == [CORE] else parts)


class Owners:
    """Follows one module tree through a step and says where the operation of this moment belongs.

    Parameters
    ----------
    module
        The model as it is called: every forward of it, outside recompute, is the next micro-batch.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._labels: list[str] = []
        self._optimizing = 0  # optimizers in one another: ZeRO's runs the one that it shares out
        self._stack: list[str] = []
        self._microbatch = -1
        self._backward_seen = False
        self._starts: list[int] = []
        self._spans: list[tuple[str, int]] = []

    @contextmanager
    def following(self) -> Iterator["Owners"]:
        """Keep hooks on the modules and on every optimizer while the context is open."""
        with ExitStack() as stack:
            for path, module in self.module.named_modules():
                name = owner_name(path)
                handles = (
                    module.register_forward_pre_hook(
                        lambda _m, _a, name=name: self._enter(name), prepend=True
                    ),
                    module.register_forward_hook(lambda _m, _a, _o: self._leave(), always_call=True),
                )
                for handle in handles:
                    stack.callback(handle.remove)
            stack.callback(register_optimizer_step_pre_hook(self._optimizer(1)).remove)
            stack.callback(register_optimizer_step_post_hook(self._optimizer(-1)).remove)
            yield self

    def enter_label(self, text: str) -> None:
        """Note that a profiler label began."""
        self._labels.append(text)

    def leave_label(self) -> None:
        """Note that the innermost profiler label ended."""
        if self._labels:
            self._labels.pop()

    def place(self) -> Place | None:
        """Return where the operation of this moment belongs, or None before the first forward."""
        node = current_node()
        if node is not None:
            self._backward_seen = True
        if any(text.startswith("FSDP::") for text in self._labels):
            return self._labelled(node)
        if self._optimizing:
            return Place(microbatch=-1, phase="O", owner="")
        if self._microbatch < 0:
            return None
        if self._stack:
            return self._in_module(node)
        if node is not None:
            return self._in_node(node)
        return self._loose()

    @property
    def stage(self) -> str:
        """Name of the pipeline stage that runs, which has buckets of its own; empty without a pipeline."""
        return ""

    def message(self, args: tuple) -> Place | None:
        """Return where a message between ranks belongs, by the arguments of its call, or None."""
        return None

    def _enter(self, name: str) -> None:
        outermost, recompute = not self._stack, current_node() is not None
        self._stack.append(name)
        if recompute:
            return
        if outermost and name == owner_name(""):
            self._microbatch += 1
            self._backward_seen = False
        self._note(name)

    def _leave(self) -> None:
        self._stack.pop()
        if current_node() is None:
            self._note(self._stack[-1] if self._stack else "")

    def _note(self, name: str) -> None:
        self._starts.append(next_sequence_number())
        self._spans.append((name, self._microbatch))

    def _optimizer(self, more: int) -> Any:
        def hook(*_arguments: Any) -> None:
            self._optimizing += more

        return hook

    def _span(self, node: Any) -> tuple[str, int]:
        number = sequence_number(node)
        index = -1 if number is None else bisect_right(self._starts, number) - 1
        return self._spans[index] if index >= 0 else ("", self._microbatch)

    def _labelled(self, node: Any) -> Place:
        """Work of an FSDP unit: the innermost label that names one."""
        found = [match for match in map(_UNIT.match, self._labels) if match]
        unit = next((m["next"] or m["unit"] for m in reversed(found) if m["next"] or m["unit"]), "")
        backward = node is not None or any(m["work"].startswith(_BACKWARD_WORK) for m in found)
        microbatch = self._microbatch if node is None else self._span(node)[1]
        phase = "B" if backward else "F"
        return Place(microbatch=max(microbatch, 0), phase=phase, owner=owner_name(unit or ""), aside=True)

    def _in_module(self, node: Any) -> Place:
        if node is None:
            return Place(microbatch=self._microbatch, phase="F", owner=self._stack[-1])
        return Place(microbatch=self._span(node)[1], phase="R", owner=self._stack[-1])

    def _in_node(self, node: Any) -> Place:
        owner, microbatch = self._span(node)
        if sequence_number(node) is None:
            return Place(
                microbatch=microbatch, phase="B", owner="", aside=True, outside=True, accumulates=True
            )
        return Place(microbatch=microbatch, phase="B", owner=owner)

    def _loose(self) -> Place:
        """Outside every module and node: the loss, what follows a backward, or a hand-written optimizer."""
        if not self._backward_seen:
            return Place(microbatch=self._microbatch, phase="F", owner="", outside=True)
        if torch.is_grad_enabled():
            return Place(microbatch=self._microbatch, phase="B", owner="", aside=True, outside=True)
        return Place(microbatch=-1, phase="O", owner="", outside=True)

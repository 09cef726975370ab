"""A published nanotron run's tensors in the order in which the program allocates them, through a caching
allocator: what its table says that it held.

Beside the tensors of the program's rows there are those that nanotron and DDP make once: each weight in BF16,
one buffer of FP32 gradients, one of FP32 weights, DDP's buckets of 25 MiB or one weight; both moments of each
weight, born in the first optimizer step, between whatever that step's activations have left. nanotron's two
gather buffers stay from their first use on (`MemoryBuffer.get`), so that backward's lies in a block that the
first forward has left; what moments take of the others, large tensors of the second step no longer find
whole: little with ZeRO 1, much with ZeRO 0.

A model with ZeRO 1 and FP32 gradients is not put into DDP (`make_ddp` in nanotron's `trainer.py`), so it has
no buckets: its gradients are reduced where they lie. Its updated weights are gathered
(`all_gather_coalesced`) from a copy of the rank's shard into a buffer for each rank's shard, and NCCL gathers
into a list through one that holds all of them.

Where the device has no room for a segment, PyTorch gives back all that are empty and asks again. The table's
figure is the most that was held from the last `reset_peak_memory_stats` on, which nanotron calls after the
backwards of each of the three steps that it runs (`log_memory`): what was given back before does not show.

Where the host is far ahead of the device, a block that a collective's stream has used is not handed out again
before that stream is done with it. So the whole tensors that reduce-scatters read, and the norms' outputs
that are gathered again in backward, stay for as many layers as wait in the queue of launches. On a pipeline's
first stage those are the forwards before the first backward less the two that are through by then; a backward
waits for the next stage.

Left out, since the training half shows no gain: that DDP has one bucket in the first step and makes those of
25 MiB before the second.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np

from benchmarks.caching_allocator import MIB, CachingAllocator
from benchmarks.ultrascale import Run, laid_stage
from playbook.program.block import Block
from playbook.program.lay import Stage
from playbook.program.order import RUNS, SEGMENTS, STATE

BUCKET = 25 * MIB
HALF, SINGLE = 2, 4
STEPS = 3
"""After so many a benchmark's run writes its row and ends."""
HALF_GRADIENT = ".weight half gradient"
MERGED = (
    ("q", "k", "v"),
    ("gate", "up"),
    ("d q", "d k", "d v"),
    ("d gate_proj", "d up_proj"),
    tuple(f"self_attn.{name}_proj{HALF_GRADIENT}" for name in "qkv"),
    tuple(f"mlp.{name}_proj{HALF_GRADIENT}" for name in ("gate", "up")),
)
"""Tensors that are one in nanotron."""
PROJECTIONS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
GATHERS_BEFORE = {"F": "q", "B": "d activation"}
"""What a run makes just after it has used its gather buffer for the first time: in forward the first
column-split product, in backward the first row-split one."""
WHOLE, GATHERED = "whole ", "norm output"
"""How names begin of tensors that a reduce-scatter of tensor parallelism reads, two a layer, and of those
that an all-gather of backward reads."""
LAUNCHES = {"F": 0.5, "B": 1.0}
"""Layers' forwards that a whole tensor stands for; backward launches twice as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A birth or a death of a tensor at a row; births come first."""

    row: int
    dies: bool
    tensor: int


class Replay:
    """The work of `reserved_bytes`."""

    def __init__(self, run: Run, stage: int, queue: float, limit: float) -> None:
        self.run, self.queue = run, queue
        self.laid, columns = laid_stage(run, stage)
        self.runs = [(RUNS[a], int(b)) for a, b in zip(columns.segment, columns.microbatch, strict=True)]
        self.weights = [numel for block in self.laid.blocks for numel in merged_weights(block)]
        self.size, self.events = timeline(self.laid)
        self.names = [self.laid.templates[index].name for index in self.laid.tensors.template]
        self.allocator = CachingAllocator(limit, wait=lambda: self.pass_over(0))
        self.buffers = dict[str, int]()
        self.issued, self.waiting = 0.0, deque[tuple[float, int]]()

    @property
    def shards(self) -> int:
        """Ranks that share the optimizer's state."""
        return self.run.dp if self.run.zero else 1

    def start(self) -> None:
        """Allocate what is there before the first step; DDP's buckets come with the model, for ZeRO 0."""
        take, whole = self.allocator.take, sum(self.weights)
        for numel in self.weights:
            take(HALF * numel)
        for size in bucket_bytes(self.weights) if self.run.dp > 1 and not self.run.zero else ():
            take(size)
        take(SINGLE * whole)
        take(SINGLE * whole // self.shards)
        for index in np.flatnonzero(self.laid.tensors.birth_segment == STATE):
            size = int(self.laid.tensors.size[index])
            if self.names[index] == "workspace":
                take(size)
            elif self.names[index] == "gather buffers":
                self.buffers = dict.fromkeys(GATHERS_BEFORE, size // 2)

    def step(self) -> None:
        """Run forward and backward of every micro-batch."""
        held: dict[int, dict[int, int]] = defaultdict(dict)
        for place, (letter, microbatch) in enumerate(self.runs):
            mine, free = held[microbatch], self.way_to_free(letter, place)
            for event in self.events[letter]:
                if not event.dies:
                    self.gather_before(letter, event.tensor)
                    mine[event.tensor] = self.allocator.take(self.size[event.tensor])
                elif event.tensor in mine:
                    free(event.tensor, mine.pop(event.tensor))
            if letter == "B":
                self.give(held.pop(microbatch).values())
        self.pass_over(0)

    def gather_before(self, letter: str, tensor: int) -> None:
        """Allocate a kind of run's gather buffer where it is used for the first time."""
        if letter in self.buffers and self.names[tensor] == GATHERS_BEFORE[letter]:
            self.allocator.take(self.buffers.pop(letter))

    def way_to_free(self, letter: str, place: int) -> Callable[[int, int], None]:
        """How a run frees a tensor's block: late if the host runs ahead in it and a collective reads it."""
        if self.run.pp > 1 and not 2 <= place < min(self.run.pp, self.run.grad_acc):
            self.pass_over(0)
            return lambda tensor, block: self.allocator.give(block)
        return lambda tensor, block: self.free(self.names[tensor], block, LAUNCHES[letter])

    def free(self, name: str, block: int, layers: float) -> None:
        """Free a block, one that a collective reads not before the device has passed it."""
        if not name.startswith((WHOLE, GATHERED)):
            self.allocator.give(block)
            return
        self.issued += layers if name.startswith(WHOLE) else 0
        self.waiting.append((self.issued, block))
        self.pass_over(self.queue)

    def pass_over(self, queue: float) -> None:
        """Free the blocks that lie more than so many layers behind what is issued."""
        while self.waiting and self.waiting[0][0] <= self.issued - queue:
            self.allocator.give(self.waiting.popleft()[1])

    def update(self, first: bool) -> None:
        """Make the moments in the first step; gather updated weights."""
        for numel in self.weights if first else ():
            for _ in range(2):
                self.allocator.take(SINGLE * numel // self.shards)
        if self.shards > 1:
            whole = HALF * sum(self.weights)
            shards = [whole // self.shards] * (self.shards + 1)
            self.give([self.allocator.take(size) for size in (*shards, whole)])

    def give(self, blocks: Iterable[int]) -> None:
        """Free blocks."""
        for block in blocks:
            self.allocator.give(block)


def reserved_bytes(run: Run, stage: int = 0, queue: float = 0, limit: float = math.inf) -> int:
    """What the table says of a run's first stage, or its last (−1), with the host up to `queue` layers'
    forwards ahead, where the device leaves `limit` bytes to the allocator.
    """
    replay = Replay(run, stage, queue, limit)
    replay.start()
    for number in range(STEPS):
        replay.step()
        replay.allocator.forget_highest()
        replay.update(first=number == 0)
    return replay.allocator.highest


def merged_weights(block: Block) -> list[int]:
    """Elements of a block's weights, with the merged projections as one."""
    weights = block.weights
    numels = {each.name.removesuffix(".weight").split(".")[-1]: cast("int", each.numel) for each in weights}
    together = [sum(numels.pop(name, 0) for name in names) for names in PROJECTIONS]
    return [numel for numel in (*together, *numels.values()) if numel]


def bucket_bytes(weights: list[int]) -> list[int]:
    """Sizes of DDP's buckets, filled from the last weight on."""
    sizes = [0]
    for numel in reversed(weights):
        if sizes[-1] >= BUCKET:
            sizes.append(0)
        sizes[-1] += HALF * numel
    return [size for size in sizes if size]


def timeline(laid: Stage) -> tuple[list[int], dict[str, list[Event]]]:
    """Sizes of a stage's tensors, and their births and deaths in a run of F and of B, in order."""
    tensors = laid.tensors
    size: list[int] = [int(bytes_) for bytes_ in tensors.size]
    last = [int(row) for row in tensors.death_row]
    for lead, others in merged(laid):
        size[lead] += sum(size[other] for other in others)
        last[lead] = max(last[index] for index in (lead, *others))
        for other in others:
            size[other] = 0
    events: dict[str, list[Event]] = {"F": [], "B": []}
    letters = {SEGMENTS.index(letter): letter for letter in events}
    for index, bytes_ in enumerate(size):
        born, gone = int(tensors.birth_segment[index]), int(tensors.death_segment[index])
        if bytes_ and born in letters:
            events[letters[born]].append(Event(row=int(tensors.birth_row[index]), dies=False, tensor=index))
            if gone in letters:
                events[letters[gone]].append(Event(row=last[index], dies=True, tensor=index))
    for some in events.values():
        some.sort(key=lambda event: (event.row, event.dies, event.tensor))
    return size, events


def merged(laid: Stage) -> list[tuple[int, list[int]]]:
    """Tensors that are one in nanotron: the one born first, and the others."""
    places: dict[str, list[int]] = defaultdict(list)
    tensors = laid.tensors
    for index in np.argsort(tensors.birth_row, kind="stable").tolist():
        places[laid.templates[tensors.template[index]].name].append(index)
    found = [zip(*(places[name] for name in names), strict=True) for names in MERGED]
    together = [sorted(parts, key=lambda index: tensors.birth_row[index]) for some in found for parts in some]
    return [(lead, others) for lead, *others in together]

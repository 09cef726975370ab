"""A collective by one algorithm on a number of ranks: steps, states, bytes and predicted time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from playbook.collectives import sentences
from playbook.collectives.algorithm import Algorithm
from playbook.collectives.operation import Operation, State, find_operation
from playbook.collectives.registry import find_algorithm
from playbook.collectives.steps import Step, run_steps
from playbook.spec import Link


@dataclass(frozen=True, kw_only=True)  # no slots: steps and states are made when asked for, and kept
class Collective:
    """What is sent step by step, what every rank holds after each step, and what it costs.

    Steps count from 1, as readers do; state 0 is before the first step and state k is after step k.

    Examples
    --------
    >>> c = collective("all_reduce", algorithm="ring", ranks=4)
    >>> len(c.steps), c.bytes_sent_per_rank(1_000_000), c.bus_factor
    (6, 1500000, 1.5)
    >>> c.sentences(1)[0]
    'rank 0 sends chunk 3 to rank 1 and adds chunk 2 from rank 3'
    """

    operation: Operation
    plan: Algorithm
    ranks: int

    @property
    def op(self) -> str:
        """Name of the operation."""
        return self.operation.name

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return self.plan.name

    @property
    def chunks(self) -> int:
        """Chunks in all; a state has one place for each on every rank.

        An all-to-all has n², block s → d being chunk s · n + d.
        """
        return self.operation.chunks(self.ranks)

    @property
    def bus_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth, as nccl-tests define it."""
        return self.operation.bus_factor(self.ranks)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Who sends what to whom, step by step; a step's transfers happen at once."""
        phases = self.plan.phases[self.op]
        return tuple(step for phase in phases for step in phase.steps(self.ranks))

    @cached_property
    def states(self) -> tuple[State, ...]:
        """Rank × chunk before the first step and after each: the ranks summed in it, None if not held."""
        return run_steps(self.operation.start(self.ranks), self.steps)

    @property
    def load(self) -> tuple[int, ...]:
        """Chunks that the busiest rank sends in each step."""
        phases = self.plan.phases[self.op]
        return tuple(chunks for phase in phases for chunks in phase.load(self.ranks))

    def result(self, rank: int) -> tuple[int, ...]:
        """Return the chunks that make up the rank's output, in order."""
        return tuple(chunk for owner, chunk in self.operation.wants(self.ranks) if owner == rank)

    def finished(self, step: int) -> tuple[int, ...]:
        """Count, per rank, the chunks of its output that are complete after `step` steps."""
        state = self.states[self._checked(step, first=0)]
        wanted = self.operation.wants(self.ranks)
        complete = [rank for (rank, chunk), ranks in wanted.items() if state[rank][chunk] == ranks]
        return tuple(complete.count(rank) for rank in range(self.ranks))

    def phase_of(self, step: int) -> str:
        """Name what a step is part of, as in "reduce-scatter"; steps count from 1."""
        self._checked(step, first=1)
        for phase in self.plan.phases[self.op]:
            length = len(phase.load(self.ranks))
            if step <= length:
                return phase.words
            step -= length
        raise AssertionError("a checked step lies in a phase")

    def sentences(self, step: int) -> tuple[str, ...]:
        """Say what each rank that takes part in a step does; steps count from 1."""
        return sentences.describe_step(self.steps[self._checked(step, first=1) - 1], self.chunk_name)

    def summary(self, step: int) -> str:
        """Say in one line where things stand after a step; 0 is before the first."""
        self._checked(step, first=0)
        if step == 0:
            return f"Before the {self.operation.words}: {self.operation.summary}."
        wanted = [len(self.result(rank)) for rank in range(self.ranks)]
        share = sum(self.load[:step]) / sum(self.load)
        return sentences.describe_progress(step, len(self.load), self.finished(step), wanted, share)

    def chunk_name(self, chunk: int) -> str:
        """Name a chunk in a sentence: "chunk 3", or "block 0→3" in an all-to-all."""
        if self.chunks == self.ranks:
            return f"chunk {chunk}"
        return "block {}→{}".format(*divmod(chunk, self.ranks))

    def chunk_bytes(self, size_bytes: int) -> int:
        """Return the bytes of a chunk of a full buffer of `size_bytes`.

        A buffer that does not divide is padded, so every chunk has the size of the largest.
        """
        if size_bytes < 0:
            raise ValueError(f"size_bytes={size_bytes}; use 0 or more")
        return -(-int(size_bytes) // self.operation.parts(self.ranks))

    def bytes_sent_per_rank(self, size_bytes: int) -> int:
        """Return the bytes that the busiest rank sends.

        Parameters
        ----------
        size_bytes
            The full buffer S of nccl-tests: what a rank holds of an all-reduce, the output of an all-gather,
            the input of a reduce-scatter or all-to-all, the message of a send.
        """
        return sum(self.load) * self.chunk_bytes(size_bytes)

    def seconds(self, size_bytes: int, link: Link) -> float:
        """Predict the time: each step takes the link's latency and the busiest rank's bytes over bandwidth.

        Model, not measurement: equal links, no pipelining of steps, no protocol switch.
        """
        chunk = self.chunk_bytes(size_bytes)
        return sum(link.seconds(chunks * chunk) for chunks in self.load)

    def _checked(self, step: int, first: int) -> int:
        if not first <= step <= len(self.load):
            raise ValueError(f"step {step} of {self.op} by {self.algorithm}; use {first} to {len(self.load)}")
        return step


def collective(op: str, algorithm: str = "ring", ranks: int = 4) -> Collective:
    """Make a collective.

    Parameters
    ----------
    op
        all_reduce, all_gather, reduce_scatter, all_to_all or send_recv.
    algorithm
        Name of a file of the folder: ring, direct.
    ranks
        At least 1; 1 has nothing to do.

    Raises
    ------
    ValueError
        For an unknown name, or fewer ranks than 1.
    """
    operation = find_operation(op)
    if isinstance(ranks, bool) or not hasattr(ranks, "__index__"):
        raise TypeError(f"ranks={ranks!r} is no whole number; use 1 or more")
    if ranks < 1:
        raise ValueError(f"ranks={ranks}; use 1 or more")
    return Collective(operation=operation, plan=find_algorithm(algorithm, operation.name), ranks=int(ranks))

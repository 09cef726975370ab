"""A collective as a job: its levers, checked in the kernel, and the function that every rank runs.

Needs no torch until it runs on a rank.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playbook.collectives import OPERATIONS, Collective, collective
from playbook.spec.rules import not_negative, whole

LEVERS: Mapping[str, str] = {
    "algorithm": "who sends what to whom: ring, direct",
    "elements": "numbers in a chunk of the run that is shown step by step",
    "pause_s": "seconds to wait after each step, to watch it",
    "sizes": "buffers that are timed, in bytes; empty for none",
    "repeats": "timed calls of each size; the fastest and the median count",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRun:
    """What every rank is told: the collective, and how to show and time it.

    Parameters
    ----------
    op, algorithm, ranks
        As in `playbook.collectives.collective`.
    elements
        Numbers in a chunk of the run that is shown step by step.
    pause_s
        Seconds to wait after each step.
    sizes
        Full buffers to time, in bytes.
    repeats
        Timed calls of each size.
    """

    op: str
    algorithm: str
    ranks: int
    elements: int = 1
    pause_s: float = 0.0
    sizes: tuple[int, ...] = (65_536,)
    repeats: int = 5

    @property
    def collective(self) -> Collective:
        """The symbolic collective: its steps are what the ranks do."""
        return collective(self.op, self.algorithm, self.ranks)


def operations() -> tuple[str, ...]:
    """Names of the collectives."""
    return tuple(OPERATIONS)


def prepare(
    name: str, ranks: int, levers: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]:
    """Check a collective's levers and say what every rank has to call.

    Raises
    ------
    ValueError
        If a lever is not known, or a value does not suit.
    """
    run = collective_run(name, ranks, **levers)
    return run_on_rank, (run,), {}, f"{run.op} by {run.algorithm}"


def collective_run(op: str, ranks: int, **levers: Any) -> CollectiveRun:
    """Make the run of a collective from its levers; those that are not given have defaults.

    Examples
    --------
    >>> collective_run("all-reduce", 4, algorithm="ring").op
    'all_reduce'
    """
    unknown = [lever for lever in levers if lever not in LEVERS]
    if unknown:
        raise ValueError(f"collective {op} has no lever {unknown[0]!r}; levers are {', '.join(LEVERS)}")
    made = collective(op, levers.pop("algorithm", "ring"), ranks)
    checks: dict[str, Callable[[Any], Any]] = {
        "elements": lambda value: whole("elements", value),
        "pause_s": lambda value: not_negative("pause_s", value),
        "sizes": read_sizes,
        "repeats": lambda value: whole("repeats", value),
    }
    given = {lever: checks[lever](value) for lever, value in levers.items()}
    return CollectiveRun(op=made.op, algorithm=made.algorithm, ranks=made.ranks, **given)


def read_sizes(value: Any) -> tuple[int, ...]:
    """Sizes as a tuple; one number is one size."""
    sizes = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    return tuple(whole("sizes", size) for size in sizes)


def own_value(rank: int, chunk: int) -> float:
    """Number that a rank's own chunk is made of before the first step: the rank counts tens, the chunk ones.

    Examples
    --------
    >>> own_value(2, 3)
    33.0
    """
    return float(10 * (rank + 1) + chunk)


def expected_states(made: Collective) -> list[list[list[float | None]]]:
    """Step × rank × chunk: the numbers that the symbolic collective predicts, None where nothing is held."""
    return [
        [
            [
                None if held is None else sum(own_value(source, chunk) for source in held)
                for chunk, held in enumerate(chunks)
            ]
            for chunks in state
        ]
        for state in made.states
    ]


def run_on_rank(run: CollectiveRun) -> dict[str, Any]:
    """Run a collective on this rank: step by step with small numbers, then timed.

    Returns
    -------
    dict
        `states` (step × rank × chunk, the first of the chunk's equal numbers, None where a rank holds
        nothing), `library` (rank × chunk of the library's result), `parity` (ok, dtype, tolerance),
        `traffic` (payload_bytes, wire_bytes, calls of this rank), `steps`, `bytes_sent_per_rank` (of the
        shown run, by formula), `times` (bytes, by, seconds, median_s, algbw, busbw), and the rows of the
        tables.
    """
    from playbook.runtime.collective_steps import run_collective

    return run_collective(run)

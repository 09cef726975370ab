"""The Ultra-Scale memory column as a table of errors: constants fitted on one half, read on the other."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ultrascale import GIB, Run, milliseconds_a_layer, peak_bytes, runs, split
from benchmarks.ultrascale_replay import reserved_bytes
from playbook.frameworks.nanotron import POLICY
from playbook.predict.memory import COMMUNICATOR_BYTES, CONTEXT_BYTES
from playbook.spec.cluster import gpu

BASES_GIB = np.arange(0, 0.55, 0.05)
QUEUES = np.arange(20, 38, 2)
PACES_MS = np.arange(5, 20, 1)
ALLOCATOR_GIB = np.arange(62, 80, 2)
NOISE = 0.18
"""Largest difference of two published runs of one configuration."""

Values = NDArray[np.float64]
Held = Mapping[int, tuple[float, float]]
"""By row: what the allocator holds with the host in step, and with the host ahead, in GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What is fitted.

    Parameters
    ----------
    base_gib
        What the allocator holds beside the replayed tensors.
    queue_layers
        Layers' forwards that fill the queue of launches.
    allocator_gib
        What an 80 GB card leaves to the allocator, beside CUDA's context and what NCCL takes for the
        communicators of a run.
    pace_ms
        A run whose layer takes less than this times √tp for a micro-batch has its host ahead.
    """

    base_gib: float
    queue_layers: float
    allocator_gib: float
    pace_ms: float

    def reserved(self, some: Iterable[Run], held: Held) -> Values:
        """Reserved memory of each run with the host in step and with the host ahead, in GiB."""
        return np.array([held[run.row] for run in some]) + self.base_gib


def replayed(some: Iterable[Run], queue: float = 0, limit_gib: float = math.inf) -> dict[int, float]:
    """What the allocator of rank 0 holds in its replay; without tensor parallelism no block waits."""
    limit = limit_gib * GIB
    return {run.row: reserved_bytes(run, queue=queue if run.tp > 1 else 0, limit=limit) / GIB for run in some}


def limited(
    some: Iterable[Run], free: Mapping[int, float], queue: float, limit_gib: float
) -> dict[int, float]:
    """What a replay holds that has a limit, given what it holds without: only what is above it changes."""
    return {**free, **replayed([run for run in some if free[run.row] > limit_gib], queue, limit_gib)}


def joined(near: Mapping[int, float], far: Mapping[int, float]) -> Held:
    """Both kinds of the rows of `far`."""
    return {row: (near[row], gib) for row, gib in far.items()}


def chosen(some: list[Run], both: Values, pace_ms: float) -> Values:
    """What the kind that a run's speed tells holds."""
    kinds = [int(ahead(run, pace_ms)) for run in some]
    return both[np.arange(len(some)), kinds]


def ahead(run: Run, pace_ms: float) -> bool:
    """Whether a run's speed tells that its host is ahead."""
    return run.tp > 1 and milliseconds_a_layer(run) < pace_ms * run.tp**0.5


def fit(some: list[Run], near: Mapping[int, float]) -> Constants:
    """Constants with the smallest sum of median and 90th percentile of the error.

    Base, queue and limit are fitted with each run of the nearer kind, then the pace with those.
    """
    measured = published(some)

    def loss(told: Values) -> float:
        error = np.abs(told / measured[:, None] - 1)
        return float(np.quantile(error.min(axis=1), (0.5, 0.9)).sum())

    found: list[tuple[float, Constants, Values]] = []
    close = {limit: limited(some, near, 0, limit) for limit in ALLOCATOR_GIB.tolist()}
    for queue in QUEUES.tolist():
        far = replayed(some, queue)
        for limit, in_step in close.items():
            held = joined(in_step, limited(some, far, queue, limit))
            for base in BASES_GIB.tolist():
                given = Constants(base_gib=base, queue_layers=queue, allocator_gib=limit, pace_ms=0.0)
                both = given.reserved(some, held)
                found.append((loss(both), given, both))
    _, level, both = min(found, key=lambda each: each[0])
    pace_ms = min(PACES_MS.tolist(), key=lambda pace: loss(chosen(some, both, pace)[:, None]))
    return replace(level, pace_ms=float(pace_ms))


def published(some: Iterable[Run]) -> Values:
    """The table's figures, in GiB."""
    return np.array([run.reserved_gib for run in some], dtype=float)


def errors(some: list[Run], held: Held, given: Constants) -> dict[str, Values]:
    """Signed relative errors: with every host in step, with the kind that the speed tells, with the nearer
    kind."""
    both, measured = given.reserved(some, held), published(some)
    each = both / measured[:, None] - 1
    nearer = np.abs(each).argmin(axis=1)
    return {
        "host in step": each[:, 0],
        "kind by speed": chosen(some, both, given.pace_ms) / measured - 1,
        "nearer kind": each[np.arange(len(some)), nearer],
    }


def figures(error: Values) -> dict[str, float]:
    """Median, 90th percentile and mean of absolute errors, and the median with its sign."""
    size = np.abs(error)
    return {
        "rows": len(error),
        "median": round(float(np.median(size)), 4),
        "p90": round(float(np.quantile(size, 0.9)), 4),
        "bias": round(float(np.median(error)), 4),
    }


def pairs(some: list[Run]) -> list[tuple[Run, Run]]:
    """Runs that differ in their ZeRO stage only, 0 first; of runs done twice the first."""
    by_shape: dict[tuple[object, ...], dict[int, Run]] = {}
    for run in some:
        shape = (run.model, run.dp, run.tp, run.pp, run.mbs, run.grad_acc)
        by_shape.setdefault(shape, {}).setdefault(run.zero, run)
    return [(found[0], found[1]) for found in by_shape.values() if len(found) > 1]


def differences(some: list[Run], held: Held, given: Constants) -> dict[str, float]:
    """How well ZeRO 0 → 1 is told, where the published difference is above the noise and both runs are of one
    kind by their speed."""
    reserved = chosen(some, given.reserved(some, held), given.pace_ms)
    told = {run.row: gib for run, gib in zip(some, reserved.tolist(), strict=True)}
    alike = [(a, b) for a, b in pairs(some) if ahead(a, given.pace_ms) == ahead(b, given.pace_ms)]
    rows = [
        (a.reserved_gib - b.reserved_gib, told[a.row] - told[b.row], a.reserved_gib)
        for a, b in alike
        if a.reserved_gib is not None and b.reserved_gib is not None
    ]
    measured, expected, level = np.array(rows, dtype=float).T
    clear = measured > NOISE * level
    wrong = np.abs(measured) > NOISE * level
    return {
        "pairs": len(pairs(some)),
        "of one kind": len(rows),
        "above the noise": int(wrong.sum()),
        "right sign": round(float(np.mean(np.sign(expected[wrong]) == np.sign(measured[wrong]))), 4),
        "median error": round(float(np.median(np.abs(expected[clear] / measured[clear] - 1))), 4),
    }


def fits(some: list[Run], held: Held, given: Constants) -> dict[str, Any]:
    """How often a run that worked is judged not to fit 80 GB, and one that failed to fit, kind by kind, and
    by the upper end of the band, as predictions are judged: the worse of the first stage and the last."""
    card, outside = gpu("h100").memory_bytes / GIB, (CONTEXT_BYTES + COMMUNICATOR_BYTES) / GIB
    worked = np.array([run.status == "ok" for run in some])
    result: dict[str, Any] = {
        "worked": int(worked.sum()),
        "failed, out of memory or crashed": int((~worked).sum()),
    }
    limit = given.allocator_gib * GIB
    last = np.array([reserved_bytes(run, -1, limit=limit) / GIB for run in some]) + given.base_gib
    peak = np.array([max(peak_bytes(run), peak_bytes(run, -1)) / GIB for run in some])
    near, far = np.maximum(given.reserved(some, held), last[:, None]).T
    needs = {
        "host in step": near,
        "host ahead": far,
        "upper end of the band": (1 + POLICY.reserved_share[1]) * peak,
    }
    for name, reserved in needs.items():
        need = reserved + outside
        result[name] = {
            "worked but judged not to fit": int((need[worked] > card).sum()),
            "failed but judged to fit": int((need[~worked] <= card).sum()),
            "of these, needing less than half of the card": int((need[~worked] <= card / 2).sum()),
        }
    return result


def table() -> dict[str, Any]:
    """The whole table."""
    drawn, every = split(), runs()
    able = [run for run in every if runnable(run)]
    ok = [run for run in able if run.status == "ok"]
    near = replayed(able)
    halves = {name: [run for run in ok if run.group in groups] for name, groups in drawn.items()}
    given = fit(halves["training"], near)
    limit, queue = given.allocator_gib, given.queue_layers
    held = joined(limited(able, near, 0, limit), replayed(able, queue, limit))
    words = {name.replace("_", " "): some for name, some in halves.items()}
    return {
        "constants": {name: round(getattr(given, name), 4) for name in given.__dataclass_fields__},
        "summary": {
            name: {kind: figures(error) for kind, error in errors(some, held, given).items()}
            for name, some in words.items()
        },
        "zero 0 to 1": {name: differences(some, held, given) for name, some in words.items()},
        "fits 80 GB": fits(able, held, given),
        "refused by nanotron's rules": len(every) - len(able),
        "columns": [
            "row",
            "allocated peak GiB",
            "replayed GiB, host in step",
            "replayed GiB, host ahead",
            "told by speed GiB",
            "published GiB",
            "error",
        ],
        "rows": rows_of(ok, held, given),
    }


def rows_of(some: list[Run], held: Held, given: Constants) -> list[list[float]]:
    """Prediction and error of each run that worked."""
    told = chosen(some, given.reserved(some, held), given.pace_ms)
    return [
        [
            run.row,
            *(round(gib, 4) for gib in (peak_bytes(run) / GIB, *held[run.row])),
            round(a, 2),
            m,
            round(a / m - 1, 4),
        ]
        for run, a, m in zip(some, told.tolist(), published(some).tolist(), strict=True)
    ]


def runnable(run: Run) -> bool:
    """Whether nanotron starts such a run at all: its 1F1B wants pp − 1 micro-batches."""
    return run.grad_acc >= run.pp - 1

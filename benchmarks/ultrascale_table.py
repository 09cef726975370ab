"""The Ultra-Scale memory column as a table of errors: constants fitted on one half, read on the other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ultrascale import GIB, Run, ahead_bytes, milliseconds_a_layer, peak_bytes, runs, split
from playbook.frameworks.nanotron import POLICY
from playbook.predict.memory import COMMUNICATOR_BYTES, CONTEXT_BYTES
from playbook.spec.cluster import gpu

SHARES = np.arange(0, 0.105, 0.005)
BASES_GIB = np.arange(0, 0.55, 0.05)
PACES_MS = np.arange(5, 20, 1)
NOISE = 0.18
"""Largest difference of two published runs of one configuration."""

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What is fitted.

    Parameters
    ----------
    share
        What the allocator holds beyond its peak, as a part of it.
    base_gib
        What it holds besides.
    pace_ms
        A run whose layer takes less than this times √tp for a micro-batch has its host ahead.
    """

    share: float
    base_gib: float
    pace_ms: float

    def reserved(self, peak_gib: Values) -> Values:
        """Reserved memory, in GiB."""
        return (1 + self.share) * peak_gib + self.base_gib


def predicted(some: Iterable[Run]) -> dict[int, tuple[float, float]]:
    """Allocated peak of rank 0 in GiB with the host in step, and with the host ahead."""
    peaks = {run.row: (peak_bytes(run), ahead_bytes(run)) for run in some}
    return {row: (peak / GIB, (peak + more) / GIB) for row, (peak, more) in peaks.items()}


def chosen(some: list[Run], peaks: Mapping[int, tuple[float, float]], pace_ms: float) -> Values:
    """The peak of the kind that a run's speed tells."""
    return np.array([peaks[run.row][int(ahead(run, pace_ms))] for run in some])


def ahead(run: Run, pace_ms: float) -> bool:
    """Whether a run's speed tells that its host is ahead."""
    return run.tp > 1 and milliseconds_a_layer(run) < pace_ms * run.tp**0.5


def fit(some: list[Run], peaks: Mapping[int, tuple[float, float]]) -> Constants:
    """Constants with the smallest sum of median and 90th percentile of the error.

    Share and base are fitted with each run of the nearer kind, then the pace with those.
    """
    measured, both = published(some), np.array([peaks[run.row] for run in some])

    def loss(given: Constants, peak: Values, truth: Values) -> float:
        error = np.abs(given.reserved(peak) / truth - 1)
        return float(np.quantile(error.min(axis=1), (0.5, 0.9)).sum())

    levels = [
        Constants(share=float(share), base_gib=float(base), pace_ms=0.0)
        for share in SHARES
        for base in BASES_GIB
    ]
    level = min(levels, key=lambda given: loss(given, both, measured[:, None]))
    paces = [replace(level, pace_ms=float(pace_ms)) for pace_ms in PACES_MS]
    return min(paces, key=lambda g: loss(g, chosen(some, peaks, g.pace_ms)[:, None], measured[:, None]))


def published(some: Iterable[Run]) -> Values:
    """The table's figures, in GiB."""
    return np.array([run.reserved_gib for run in some], dtype=float)


def errors(some: list[Run], peaks: Mapping[int, tuple[float, float]], given: Constants) -> dict[str, Values]:
    """Signed relative errors: with every host in step, with the kind that the speed tells, with the nearer
    kind."""
    measured = published(some)
    both = np.array([peaks[run.row] for run in some])
    each = given.reserved(both) / measured[:, None] - 1
    nearer = np.abs(each).argmin(axis=1)
    return {
        "host in step": each[:, 0],
        "kind by speed": given.reserved(chosen(some, peaks, given.pace_ms)) / measured - 1,
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


def differences(
    some: list[Run], peaks: Mapping[int, tuple[float, float]], given: Constants
) -> dict[str, float]:
    """How well ZeRO 0 → 1 is told, where the published difference is above the noise and both runs are of one
    kind by their speed."""
    told = {run.row: peak for run, peak in zip(some, chosen(some, peaks, given.pace_ms), strict=True)}
    alike = [(a, b) for a, b in pairs(some) if ahead(a, given.pace_ms) == ahead(b, given.pace_ms)]
    rows = [
        (a.reserved_gib - b.reserved_gib, (1 + given.share) * (told[a.row] - told[b.row]), a.reserved_gib)
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


def fits(some: list[Run], worst: Mapping[int, tuple[float, float]], given: Constants) -> dict[str, Any]:
    """How often a run that worked is judged not to fit 80 GB, and one that failed to fit, kind by kind, and
    by the upper end of the band, as predictions are judged."""
    card, outside = gpu("h100").memory_bytes / GIB, (CONTEXT_BYTES + COMMUNICATOR_BYTES) / GIB
    worked = np.array([run.status == "ok" for run in some])
    result: dict[str, Any] = {
        "worked": int(worked.sum()),
        "failed, out of memory or crashed": int((~worked).sum()),
    }
    near, far = np.array([worst[run.row] for run in some]).T
    needs = {
        "host in step": given.reserved(near),
        "host ahead": given.reserved(far),
        "upper end of the band": (1 + POLICY.reserved_share[1]) * near,
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
    halves, every = split(), runs()
    able = [run for run in every if runnable(run)]
    ok = [run for run in able if run.status == "ok"]
    peaks = predicted(able)
    last = {run.row: peak_bytes(run, -1) / GIB for run in able}
    worst = {row: (max(near, last[row]), max(far, last[row])) for row, (near, far) in peaks.items()}
    training = [run for run in ok if run.group in halves["training"]]
    held_out = [run for run in ok if run.group in halves["held_out"]]
    given = fit(training, peaks)
    summary = {
        name: {kind: figures(error) for kind, error in errors(half, peaks, given).items()}
        for name, half in (("training", training), ("held out", held_out))
    }
    return {
        "constants": {name: round(getattr(given, name), 4) for name in given.__dataclass_fields__},
        "summary": summary,
        "zero 0 to 1": {
            name: differences(half, peaks, given)
            for name, half in (("training", training), ("held out", held_out))
        },
        "fits 80 GB": fits(able, worst, given),
        "refused by nanotron's rules": len(every) - len(able),
        "columns": [
            "row",
            "peak GiB, host in step",
            "peak GiB, host ahead",
            "told by speed GiB",
            "published GiB",
            "error",
        ],
        "rows": rows_of(ok, peaks, given),
    }


def rows_of(some: list[Run], peaks: Mapping[int, tuple[float, float]], given: Constants) -> list[list[float]]:
    """Prediction and error of each run that worked."""
    told, measured = given.reserved(chosen(some, peaks, given.pace_ms)), published(some)
    return [
        [run.row, *(round(peak, 3) for peak in peaks[run.row]), round(a, 2), m, round(a / m - 1, 4)]
        for run, a, m in zip(some, told.tolist(), measured.tolist(), strict=True)
    ]


def runnable(run: Run) -> bool:
    """Whether nanotron starts such a run at all: its 1F1B wants pp − 1 micro-batches."""
    return run.grad_acc >= run.pp - 1

"""The Ultra-Scale memory column as a table of errors: constants fitted on one half, read on the other."""

from typing import Any

import numpy as np

from benchmarks.ultrascale import GIB, Run, peak_bytes, runs, split
from benchmarks.ultrascale_fit import (
    Constants,
    Held,
    Values,
    ahead,
    chosen,
    fit,
    joined,
    limited,
    published,
    replayed,
)
from benchmarks.ultrascale_replay import reserved_bytes
from playbook.frameworks.nanotron import POLICY
from playbook.predict.memory import COMMUNICATOR_BYTES, CONTEXT_BYTES
from playbook.spec.cluster import gpu

NOISE = 0.18
"""Largest difference of two published runs of one configuration."""


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
    last = [reserved_bytes(run, -1, limit=given.limit_gib(run) * GIB) / GIB for run in some]
    peak = np.array([max(peak_bytes(run), peak_bytes(run, -1)) / GIB for run in some])
    near, far = np.maximum(given.reserved(some, held), np.array(last)[:, None] + given.base_gib).T
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
    in_step = limited(able, near, 0, given.limit_gib)
    held = joined(in_step, replayed(able, given.queue_layers, given.limit_gib))
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

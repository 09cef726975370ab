"""Latency and bandwidth of a link, fitted to measured times of a collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from playbook.collectives import Collective
from playbook.spec import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Latency and bandwidth that fit measured times, and how well they predict the sizes left out."""

    link: Link
    fitted: tuple[int, ...]
    """Sizes that the fit has seen, in bytes."""
    held_out: tuple[int, ...]
    """Sizes that it has not."""
    median_error: float
    worst_error: float
    """|predicted / measured − 1| on the sizes held out, or on all if none was."""


def fit_link(one: Collective, times: Mapping[int, float]) -> Fit:
    """Fit latency and bandwidth to times of one collective by least squares of relative errors.

    Parameters
    ----------
    one
        The collective that was timed.
    times
        Bytes of the full buffer → seconds; every other size is held out where there are four or more.

    Raises
    ------
    ValueError
        For fewer than two sizes, or a collective with nothing to send.
    """
    sizes = sorted(times)
    if len(sizes) < 2 or not one.load:
        raise ValueError(f"{len(sizes)} sizes timed; a fit of latency and bandwidth needs two or more")
    seen = sizes[::2] if len(sizes) >= 4 else sizes
    held = tuple(size for size in sizes if size not in seen)
    link = _least_squares(one, seen, [times[size] for size in seen])
    errors = [abs(one.seconds(size, link) / times[size] - 1) for size in held or tuple(seen)]
    return Fit(
        link=link,
        fitted=tuple(seen),
        held_out=held,
        median_error=float(np.median(errors)),
        worst_error=max(errors),
    )


def _least_squares(one: Collective, sizes: Sequence[int], times: Sequence[float]) -> Link:
    """Solve steps · latency + bytes / bandwidth = time for both, each equation over its time.

    Neither below zero.
    """
    rows = np.array(
        [[len(one.load) / t, one.bytes_sent_per_rank(size) / t] for size, t in zip(sizes, times, strict=True)]
    )
    latency, per_byte = np.linalg.lstsq(rows, np.ones(len(times)), rcond=None)[0]
    if latency < 0:
        latency, per_byte = 0.0, float(rows[:, 1].sum() / (rows[:, 1] ** 2).sum())
    if per_byte <= 0:
        latency, per_byte = float(rows[:, 0].sum() / (rows[:, 0] ** 2).sum()), 1e-12
    return Link(latency_s=float(latency), bandwidth_bytes_per_s=1 / float(per_byte))

"""The most that a rank may hold: a cap in activations, or the memory of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from playbook.pictures.pipeline_orders import TimedOrder
from playbook.pictures.pipeline_setting import Setting
from playbook.pictures.words import short
from playbook.units import THIN, gb


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A cap in the unit of a picture's peaks, and how a view shows it."""

    most: float
    """In the unit of the peaks; 0 for no limit."""
    scale: float
    """The view's unit of memory, in that of the peaks."""
    unit: str
    """The view's unit, "A" or "GB"."""
    words: str

    @property
    def value(self) -> float:
        """In the view's unit."""
        return self.most / self.scale


def limit_of(one: TimedOrder, setting: Setting) -> Limit:
    """The GPU's capacity with a model, else the setting's cap."""
    if one.model is not None:
        capacity = float(one.model.capacity_bytes)
        return Limit(most=capacity, scale=1e9, unit="GB", words=f"{one.gpu_words} {gb(capacity)}")
    cap = setting.cap if not one.forward else 0.0
    return Limit(most=cap, scale=1.0, unit="A", words=f"cap {short(cap)}{THIN}A")


def over_spans(one: TimedOrder, limit: Limit, scale: float) -> list[list[float]]:
    """Spans [rank, from, to] in which a rank holds more than the limit, on the view's clock."""
    if not limit.most:
        return []
    spans: list[list[float]] = []
    for rank, peak in enumerate(one.peaks):
        if peak > limit.most:
            spans += [[rank, begin / scale, end / scale] for begin, end in _spans(one, rank, limit.most)]
    return spans


def _spans(one: TimedOrder, rank: int, most: float) -> list[tuple[float, float]]:
    times, held = one.curve(rank)
    over = np.flatnonzero(held > most)
    if not over.size:
        return [(0.0, one.timed.makespan)]
    ends = np.append(times[1:], one.timed.makespan)
    breaks = np.flatnonzero(np.diff(over) > 1)
    firsts, lasts = over[np.append(0, breaks + 1)], over[np.append(breaks, over.size - 1)]
    spans = zip(times[firsts].tolist(), ends[lasts].tolist(), strict=True)
    return [(begin, end) for begin, end in spans if end > begin]

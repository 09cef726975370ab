"""Peak of every pipeline rank by term, with the worst one named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from playbook.pictures.memory_groups import group_bytes
from playbook.pictures.memory_layout import schedule_words
from playbook.pictures.words import amount, bare, short, with_article
from playbook.predict.orders import pipeline
from playbook.program.summary import RankMemory
from playbook.spec import Scenario
from playbook.units import counted, percent

MOST_ROWS = 16
"""More ranks than these are shown by the first, the last, the worst and even steps between."""


def stages_picture(s: Scenario, memories: Sequence[RankMemory]) -> dict[str, Any]:
    """Bars of the pipeline ranks' peaks for a view; empty without a pipeline.

    Parameters
    ----------
    s
        The scenario.
    memories
        `pipeline` of the scenario's `TrainingMemory`.
    """
    if not memories:
        return {}
    peaks = [memory.peak_bytes for memory in memories]
    worst = max(range(len(peaks)), key=peaks.__getitem__)
    return {
        "title": ["Peak of each pipeline rank", finding(s, peaks, worst)],
        "worst": worst,
        "capacity": s.cluster.gpu.memory_bytes,
        "rows": [
            {
                "rank": rank,
                "name": f"rank {rank}",
                "sub": f"{counted(layers_of(s, rank), 'layer')}{ends(s, rank)}",
                "parts": [
                    [group, size, bare(size)]
                    for group, size in group_bytes(memories[rank].terms).items()
                    if size
                ],
                "total": peaks[rank],
                "words": bare(peaks[rank]),
            }
            for rank in shown(len(peaks), worst)
        ],
    }


def finding(s: Scenario, peaks: Sequence[int], worst: int) -> str:
    """Which rank is the worst, and how far above the mean."""
    mean, gpu = sum(peaks) / len(peaks), s.cluster.gpu
    drawn = len(shown(len(peaks), worst))
    some = f"; {drawn} of {len(peaks)} ranks are drawn" if drawn < len(peaks) else ""
    return (
        f"rank {worst} is the worst: {amount(peaks[worst])}, {percent(peaks[worst] / mean - 1, signed=True)} "
        f"against the mean of {len(peaks)}; {schedule_words(s.layout.schedule)}, "
        f"{counted(s.microbatches, 'micro-batch', 'micro-batches')}; "
        f"{with_article(gpu.name.upper())} has {short(gpu.memory_bytes / peaks[worst], 2)} × that{some}"
    )


def shown(ranks: int, worst: int) -> list[int]:
    """Ranks that get a row."""
    if ranks <= MOST_ROWS:
        return list(range(ranks))
    step = -(-ranks // (MOST_ROWS - 2))
    return sorted({*range(0, ranks, step), worst, ranks - 1})


def layers_of(s: Scenario, rank: int) -> int:
    """Layers that a pipeline rank holds in all of its chunks, by the schedule's placement."""
    placement, stages = pipeline(s).placement, s.layout.stages
    return sum(s.stage_layers[slot % stages] for slot, owner in enumerate(placement) if owner == rank)


def ends(s: Scenario, rank: int) -> str:
    """What else a rank holds: the embedding, the head."""
    placement, stages = pipeline(s).placement, s.layout.stages
    mine = {slot % stages for slot, owner in enumerate(placement) if owner == rank}
    parts = [name for stage, name in ((0, "embedding"), (stages - 1, "head")) if stage in mine]
    return "".join(f", {name}" for name in parts)

"""The comparison under a memory picture: formula, trace, a recorded twin, the real step of a small one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playbook.pictures.memory_words import instant_words, stage_name
from playbook.pictures.words import bare, difference, row, with_article
from playbook.recorded import RecordedTwin
from playbook.units import thousands

if TYPE_CHECKING:
    from playbook.pictures.memory_run import MeasuredMemory
    from playbook.pictures.memory_view import MemoryView


def table_rows(view: MemoryView, measured: MeasuredMemory | None) -> dict[str, Any]:
    """Shown scenario by formula, trace and recorded twin, then the real step of a small one by all three."""
    rows = [state_row(view), peak_row(view, measured), reserved_row(view), device_row(view)]
    found = [f"a real step: {measured.source}"] if measured and measured.source else []
    if measured and measured.stand_in:
        rows.append(measured.row)
    if view.twin:
        found.insert(0, twin_source(view.twin))
    rank = f"rank {thousands(view.rank)} of {thousands(view.scenario.world)}"
    head = f"{view.model.name}, {stage_name(view.zero)}, {rank}, GB"
    formula = f"formula, {view.scenario.framework}"
    return {
        "head": head,
        "rows": rows,
        "sources": {"formula": formula, "traced": "traced", "measured": "; ".join(found)},
    }


def state_row(view: MemoryView) -> dict[str, Any]:
    """What the rank holds between two steps."""
    state = view.memory.walk.state
    terms = [name.replace("_", " ") for name, size in state.items() if size]
    return row(
        "state between steps",
        " + ".join(terms),
        formula=bare(sum(state.values())),
        measured="—",
        traced="—",
    )


def peak_row(view: MemoryView, measured: MeasuredMemory | None) -> dict[str, Any]:
    """The peak that the allocator hands out, by every way of knowing it."""
    peak = view.memory.peak_bytes
    traced = measured.shown.peak_bytes if measured and measured.shown else None
    differences = [f"traced {difference(traced, peak)}"] if traced else []
    if view.twin:
        differences.append(f"{'twin ' if traced else ''}{difference(view.twin.peak_bytes, peak)}")
    return row(
        "peak",
        instant_words(view.memory.instant),
        formula=bare(peak),
        traced=bare(traced) if traced else "not traced",
        difference=", ".join(differences),
        **twin_cells(view.twin, view.twin.peak_bytes if view.twin else 0),
    )


def reserved_row(view: MemoryView) -> dict[str, Any]:
    """What the allocator takes from the driver: a band, by the order of what it was asked for."""
    memory, twin = view.memory, view.twin
    low, high = memory.reserved_low_bytes, memory.reserved_bytes
    if high == memory.peak_bytes:
        return row("reserved by the allocator", "the papers count none")
    over = f"{share_over(low, memory.peak_bytes)}–{share_over(high, memory.peak_bytes)} % over the peak"
    if twin:
        over += f", the twin {share_over(twin.reserved_bytes, twin.peak_bytes)} %"
    return row(
        "reserved by the allocator",
        over,
        formula=f"{bare(low)}–{bare(high)}",
        traced="—",
        difference=beside_band(twin.reserved_bytes, low, high) if twin else "",
        **twin_cells(twin, twin.reserved_bytes if twin else 0),
    )


def device_row(view: MemoryView) -> dict[str, Any]:
    """What the driver reports as used, at most, and whether the GPU has it."""
    band = view.memory.reserved_bytes > view.memory.peak_bytes
    return row(
        "on the device",
        f"{'the upper end' if band else 'the peak'} and the driver's context",
        formula=bare(view.memory.device_bytes),
        traced="—",
        measured="—",
        difference="✓ fits" if view.memory.fits else "✕ too much",
    )


def twin_cells(twin: RecordedTwin | None, size_bytes: int) -> dict[str, str]:
    """Measured cell of a row: a twin's figure, which says that it is one; a dash without."""
    if twin is None:
        return {"measured": "—"}
    return {"measured": bare(size_bytes), "by": "twin", "source": twin_source(twin)}


def twin_source(twin: RecordedTwin) -> str:
    """Where a twin's figures come from.

    Examples
    --------
    >>> from playbook.recorded import recorded_twins
    >>> twin_source(recorded_twins()[0]).startswith("twin of rank ")
    True
    """
    where = f"recorded on {with_article(twin.machine)}, {twin.date}"
    return f"twin of rank {twin.rank} of {twin.scenario.world}, {where}"


def beside_band(size_bytes: int, low: int, high: int) -> str:
    """Where a measured size lies against a predicted band: inside, or so far from its nearer end.

    Examples
    --------
    >>> beside_band(12, 10, 14), beside_band(20, 10, 16)
    ('in the band ✓', '+25.0\u2009% over it')
    """
    if low <= size_bytes <= high:
        return "in the band ✓"
    end, where = (high, "over") if size_bytes > high else (low, "under")
    return f"{difference(size_bytes, end)} {where} it"


def share_over(size_bytes: float, peak: int) -> int:
    """Whole per cent by which a size is over the peak."""
    return round(100 * (size_bytes / peak - 1))

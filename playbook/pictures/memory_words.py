"""What a picture of training memory says: which stages fit, where the peak is and what makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playbook.pictures.words import amount, bare, counted, difference, row, short
from playbook.predict import ZeroState
from playbook.spec import Layout
from playbook.units import percent

if TYPE_CHECKING:
    from playbook.pictures.memory_run import MeasuredMemory
    from playbook.pictures.memory_view import MemoryView

STAGES = ("no sharding", "ZeRO-1", "ZeRO-2", "ZeRO-3")
SPLITS = ("DDP", "optimizer", "+ gradients", "+ parameters")
BLOCKS = {"embed_tokens": "the embedding", "lm_head": "the head", "norm": "the last norm", "root": "the loss"}
PHASES = {"F": "forward", "R": "recompute", "B": "backward", "O": "optimizer step"}


def stage_name(zero: int) -> str:
    """Name of a ZeRO stage in a sentence."""
    return STAGES[zero] if zero else "DDP"


def instant_words(instant: str) -> str:
    """An instant as a reader says it.

    Examples
    --------
    >>> instant_words("B layers.78"), instant_words("F lm_head"), instant_words("O root")
    ('backward of layer 78', 'forward of the head', 'optimizer step')
    """
    phase, _, block = instant.partition(" ")
    if phase == "O":
        return PHASES["O"]
    name = f"layer {block.split('.')[1]}" if block.startswith("layers.") else BLOCKS.get(block, block)
    return f"{PHASES.get(phase, phase)} of {name}"


def layout_words(layout: Layout) -> str:
    """Ranks of a layout, and its degrees where more than one axis is in use.

    Examples
    --------
    >>> layout_words(Layout(dp=64)), layout_words(Layout(dp=8, tp=8, pp=4))
    ('64 ranks', '256 ranks: dp 8 · tp 8 · pp 4')
    """
    names = ("dp", "tp", "pp", "cp", "ep")
    used = [f"{name} {getattr(layout, name)}" for name in names if getattr(layout, name) > 1]
    ranks = counted(layout.world, "rank")
    return f"{ranks}: {' · '.join(used)}" if used and used != [f"dp {layout.dp}"] else ranks


def bar_words(state: ZeroState, capacity_bytes: int) -> dict[str, Any]:
    """Name, total and parts of a bar as text, and whether the state alone is within the GPU's memory."""
    copied, shared = sum(state.copied.values()), sum(state.shared.values())
    parts = [f"{name} {bare(size)}" for name, size in (("copied", copied), ("shared", shared)) if size]
    return {
        "name": STAGES[state.zero],
        "sub": SPLITS[state.zero],
        "words": bare(state.total_bytes),
        "parts": " + ".join(parts),
        "fits": state.total_bytes <= capacity_bytes,
    }


def headline(view: MemoryView) -> list[str]:
    """Which stages' state fits, and what the step drawn adds to it."""
    name = (
        f"an {view.scenario.cluster.gpu.name.upper()}"
        if view.scenario.cluster.gpu.name[:1] in "ah"
        else f"a {view.scenario.cluster.gpu.name.upper()}"
    )
    fitting = [state.zero for state in view.states if state.total_bytes <= view.capacity_bytes]
    state = view.states[view.zero].total_bytes
    rest = (
        f"{amount(state)} to keep, {amount(view.memory.peak_bytes)} in {instant_words(view.memory.instant)}."
    )
    if not fitting:
        return [
            f"No ZeRO stage fits in {name}:",
            f"even ZeRO-3 keeps {amount(view.states[3].total_bytes)} of state on each rank.",
        ]
    if view.zero not in fitting:
        return [f"{_who(fitting)} in {name}, {stage_name(view.zero)} does not:", rest]
    if not view.memory.fits:
        return [
            f"The state of {stage_name(view.zero)} fits in {name}, its step does not:",
            f"{rest[:-1]}, {amount(view.memory.device_bytes)} with what the allocator and the driver hold.",
        ]
    whose = "its peak" if fitting == [3] else f"the peak of {stage_name(view.zero)}"
    return [f"{_who(fitting)} in {name}, and {whose} is {_ratio(view, state)}:", rest]


def _who(fitting: list[int]) -> str:
    if fitting == [3]:
        return "Only ZeRO-3 fits"
    if len(fitting) == 4:
        return "Every stage fits"
    return f"{' and '.join(stage_name(zero) for zero in fitting)} fit"


def _ratio(view: MemoryView, state: int) -> str:
    ratio = view.memory.peak_bytes / state
    if ratio < 1.05:
        return "little more than its state"
    return "twice its state" if abs(ratio - 2) < 0.1 else f"{short(ratio, 2)} × its state"


def step_title(view: MemoryView) -> list[str]:
    """Whose step is drawn, and by whose accounting."""
    who = {
        "textbook": "the papers' accounting, no buffers",
        "torch": "PyTorch FSDP2" if view.zero == 3 else "PyTorch",
        "transformers": "Hugging Face under FSDP2",
    }
    by = who.get(view.scenario.framework, view.scenario.framework)
    rank = view.memory.worst_rank["rank"]
    return [f"One {stage_name(view.zero)} step on rank {rank}", f"{by}; operations in order"]


def table_rows(view: MemoryView, measured: MeasuredMemory | None) -> dict[str, Any]:
    """Shown scenario by formula and trace, then the real step of a small one by all three."""
    walk = view.memory.walk
    traced = measured.shown.peak_bytes if measured and measured.shown else None
    rows = [
        row(
            "state between steps",
            " + ".join(walk.state),
            formula=bare(sum(walk.state.values())),
            measured="—",
            traced="—",
        ),
        row(
            "peak",
            instant_words(view.memory.instant),
            formula=bare(view.memory.peak_bytes),
            traced=bare(traced) if traced else "not traced",
            measured="—",
            difference=f"traced {difference(traced, view.memory.peak_bytes)}" if traced else "",
        ),
        row(
            "on the device",
            f"with {_unused(view)} unused and the driver's context",
            formula=bare(view.memory.device_bytes),
            traced="—",
            measured="—",
            difference="✓ fits" if view.memory.fits else "✕ too much",
        ),
    ]
    source = ""
    if measured and measured.stand_in:
        rows.append(measured.row)
        source = measured.source
    rank = f"rank {view.memory.worst_rank['rank']} of {view.scenario.world}"
    head = f"{view.model.name}, {stage_name(view.zero)}, {rank}, GB"
    return {
        "head": head,
        "rows": rows,
        "sources": {"formula": f"formula, {view.scenario.framework}", "traced": "traced", "measured": source},
    }


def _unused(view: MemoryView) -> str:
    """Share that the allocator holds beyond the peak, upper end of its band."""
    return percent(view.memory.reserved_bytes / view.memory.peak_bytes - 1)

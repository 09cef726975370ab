"""What a picture of training memory says: which stages fit, where the peak is and what makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from playbook.pictures.memory_layout import schedule_words
from playbook.pictures.words import amount, bare, short, with_article
from playbook.predict import ZeroState
from playbook.spec import Layout
from playbook.units import counted, thousands

if TYPE_CHECKING:
    from playbook.pictures.memory_view import MemoryView

STAGES = ("no sharding", "ZeRO-1", "ZeRO-2", "ZeRO-3")
SPLITS = ("DDP", "optimizer", "+ gradients", "+ parameters")
BLOCKS = {"embed_tokens": "the embedding", "lm_head": "the head", "norm": "the last norm", "root": "the loss"}
FRAMEWORKS = {
    "textbook": "the papers' accounting, no buffers",
    "torch": "PyTorch",
    "transformers": "Hugging Face under FSDP2",
    "megatron": "Megatron-LM",
    "deepspeed": "DeepSpeed",
    "nanotron": "Nanotron",
    "torchtitan": "torchtitan",
}
PAPERS = ", by the papers' accounting"
"""Behind a sentence whose numbers are the textbook's although another framework was asked for."""
PHASES = {
    "F": "forward",
    "R": "recompute",
    "B": "backward",
    "I": "backward for inputs",
    "W": "backward for weights",
    "O": "optimizer step",
}


def stage_name(zero: int) -> str:
    """Name of a ZeRO stage in a sentence."""
    return STAGES[zero] if zero else "DDP"


def instant_words(instant: str) -> str:
    """An instant as a reader says it.

    Examples
    --------
    >>> instant_words("B layers.78"), instant_words("F lm_head"), instant_words("O root")
    ('backward of layer 78', 'forward of the head', 'optimizer step')
    >>> instant_words("W layers.3")
    'backward for weights of layer 3'
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
    >>> layout_words(Layout(dp=64)), layout_words(Layout(dp=8, tp=8, pp=4, sequence_parallel=True))
    ('64 ranks', '256 ranks: dp 8 · tp 8 with SP · pp 4')
    """
    named = "tp {} with SP" if layout.sequence_parallel else "tp {}"
    names = ("dp", "tp", "pp", "cp", "ep")
    degrees = [(name, getattr(layout, name)) for name in names]
    used = [named.format(size) if name == "tp" else f"{name} {size}" for name, size in degrees if size > 1]
    ranks = counted(layout.world, "rank")
    return f"{ranks}: {' · '.join(used)}" if used and used != [f"dp {layout.dp}"] else ranks


def kick(view: MemoryView) -> str:
    """Line above the headline: the model, its ranks, the schedule of a pipeline."""
    layout = view.scenario.layout
    schedule = [schedule_words(layout.schedule)] if layout.pp > 1 else []
    return " · ".join((view.model.name, layout_words(layout), *schedule, "training"))


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
    name = with_article(view.gpu)
    fitting = [state.zero for state in view.states if state.total_bytes <= view.capacity_bytes]
    state = view.states[view.zero].total_bytes
    kept, at = f"{amount(state)} to keep", instant_words(view.memory.instant)
    by = PAPERS if view.asked else ""
    rest = f"{kept}, {amount(view.memory.peak_bytes)} in {at}{by}"
    if not fitting:
        return [
            f"No ZeRO stage fits in {name}:",
            f"even ZeRO-3 keeps {amount(view.states[3].total_bytes)} of state on each rank{by}.",
        ]
    if view.zero not in fitting:
        return [f"{_who(fitting)} in {name}, {stage_name(view.zero)} does not:", f"{rest}."]
    if not view.memory.fits:
        return [
            f"The state of {stage_name(view.zero)} fits in {name}, its step does not:",
            f"{rest}, {amount(view.memory.device_bytes)} with what the allocator and the driver hold.",
        ]
    peak = "its peak" if fitting == [3] else f"the peak of {stage_name(view.zero)}"
    return [f"{_who(fitting)} in {name}, and {peak} is {_ratio(view, state)}:", f"{rest}."]


def _who(fitting: Sequence[int]) -> str:
    if fitting == [3]:
        return "Only ZeRO-3 fits"
    if len(fitting) == 4:
        return "The state of every stage fits"
    *others, last = [stage_name(zero) for zero in fitting]
    return f"The state of {', '.join(others)} and {last} fits"


def _ratio(view: MemoryView, state: int) -> str:
    ratio = view.memory.peak_bytes / state
    if ratio < 1.05:
        return "little more than its state"
    return "twice its state" if abs(ratio - 2) < 0.1 else f"{short(ratio, 2)} × its state"


def whose(view: MemoryView) -> str:
    """Whose state the bars show: any rank's, or that of the worst pipeline rank."""
    return f"of pipeline rank {view.memory.worst_rank['pp']}" if view.scenario.layout.pp > 1 else "per rank"


def step_title(view: MemoryView) -> list[str]:
    """Whose step is drawn, and by whose accounting; that it is not the one asked for stands first."""
    by = FRAMEWORKS.get(view.scenario.framework, view.scenario.framework)
    if view.scenario.framework == "torch" and view.zero == 3:
        by = "PyTorch FSDP2"
    if view.asked:
        by = f"in place of {FRAMEWORKS.get(view.asked, view.asked)}, no buffers"
    worst = view.memory.worst_rank
    where = f", pipeline rank {worst['pp']}" if view.scenario.layout.pp > 1 else ""
    split = " with SP" if view.scenario.layout.sequence_parallel else ""
    step = f"One {stage_name(view.zero)} step{split} on rank {worst['rank']}{where}"
    return [f"{step}{PAPERS if view.asked else ''}", f"{by}; operations in order"]


def cut_words(view: MemoryView) -> list[str]:
    """Say that the step is of fewer tokens than asked for; nothing where it is not."""
    if not view.cut_from:
        return []
    drawn = thousands(view.scenario.workload.sequence)
    return [
        f"{view.model.name} has {drawn} learned positions: the step drawn is of {drawn} tokens, not of the "
        f"{thousands(view.cut_from)} asked for."
    ]

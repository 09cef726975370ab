"""Backwards: the largest field of a scenario that fits its GPUs, or the fewest GPUs that hold it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from playbook.predict.fit_search import Memo, Tried, first_that_fits, last_that_fits
from playbook.predict.fit_serving import serving_choices
from playbook.predict.fit_training import Choices, choices_of, tried, ways
from playbook.predict.left_out import left_out, noted
from playbook.predict.unbuilt import refuse_unbuilt
from playbook.spec import Scenario, Serving
from playbook.spec.rules import choice
from playbook.units import counted, gb, size, thousands

if TYPE_CHECKING:
    from pandas import DataFrame

FIELDS = ("sequence", "micro_batch", "layers", "gpus", "concurrency")
WORDS = {
    "sequence": "tokens a sequence",
    "micro_batch": "sequences a micro-batch",
    "layers": "layers",
    "gpus": "GPUs",
    "concurrency": "sequences at once",
}
ONE = {
    "sequence": "token a sequence",
    "micro_batch": "sequence a micro-batch",
    "layers": "layer",
    "gpus": "GPU",
    "concurrency": "sequence at once",
}
OFFERED = 3
"""Ways that are named where nothing fits."""

NARROWER = "weights='fp8' or 'int4-g128'"
SMALLER = f"use more GPUs (vary='gpus' tells how many), or {NARROWER}"
FEWER = f"use fewer sequences at once (vary='concurrency' tells how many), or {NARROWER}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Fit:
    """What fits.

    Parameters
    ----------
    scenario, serving, vary
        What was asked.
    value
        Largest value that fits, smallest for GPUs; None if none does.
    limit_bytes
        Memory of the GPU, which the need must not exceed.
    tried
        Every value that was evaluated, in order.
    note
        What bounds the value, or what would make room, and what of the model is left out, in words.
    """

    scenario: Scenario
    serving: Serving | None
    vary: str
    value: int | None
    limit_bytes: int
    tried: tuple[Tried, ...]
    note: str

    def __repr__(self) -> str:
        gpu = self.scenario.cluster.gpu.name
        if self.best is None:
            return f"Fit(no number of {WORDS[self.vary]} fits {gpu} with {gb(self.limit_bytes)}; {self.note})"
        free = size(self.limit_bytes - self.best.device_bytes)
        used = f"{gb(self.best.device_bytes)} of {gpu}'s {gb(self.limit_bytes)}, {free} free"
        return f"Fit({self.words}: {used}{self.note and f'; {self.note}'})"

    @property
    def words(self) -> str:
        """The value with what it counts; empty if nothing fits."""
        return "" if self.value is None else counted(self.value, ONE[self.vary], WORDS[self.vary])

    @property
    def best(self) -> Tried | None:
        """The evaluation of the value."""
        return next((one for one in self.tried if one.value == self.value), None)

    @property
    def table(self) -> "DataFrame":
        """Every value that was evaluated: what it needs, and whether it fits."""
        import pandas as pd

        rows = [
            {
                self.vary: one.value,
                "peak_bytes": one.peak_bytes,
                "device_bytes": one.device_bytes,
                "fits": one.fits,
            }
            for one in self.tried
        ]
        return pd.DataFrame(rows)


def fit(s: Scenario, vary: str = "sequence", serving: Serving | None = None) -> Fit:
    """Find the largest value of a field that fits, or the fewest GPUs.

    Parameters
    ----------
    s
        The scenario; its other fields stay.
    vary
        "sequence", "micro_batch", "layers", "gpus" (more replicas in training, wider engines in serving) or
        "concurrency"; a hyphen is read as an underscore.
    serving
        A serving load: inference is asked then. "concurrency" needs it.

    Notes
    -----
    Exact: the value was evaluated and fits, the next was evaluated and does not. Training is judged by the
    worst rank's `device_bytes`, which grows with sequences, micro-batches and layers and falls with GPUs;
    only numbers that the layout can cut are looked at.

    Raises
    ------
    ValueError
        If the field is not known, or goes with the other kind of question.
    """
    field = choice("vary", vary.replace("-", "_") if isinstance(vary, str) else vary, FIELDS)
    if serving is not None:
        return fit_serving(s, field, serving)
    if field == "concurrency":
        raise ValueError("vary='concurrency' asks an engine; give serving=pb.Serving(...)")
    refuse_unbuilt(s)
    choices, limit = choices_of(s, field), s.cluster.gpu.memory_bytes
    memo = asked(choices, limit)
    if choices.falling:
        index = first_that_fits(memo, choices.count)
    else:
        index = last_that_fits(memo, choices.count, choices.start)
    value = None if index is None else choices.value(index)
    if index is None:
        last = memo.tried[-1 if choices.falling else 0].value
        need = f"the least needs {gb(least_of(memo).device_bytes)}"
        note = f"{need}; {offered(choices.change(last), last)}"
    else:
        note = noted(ended(memo, field), nodes(s, field, value))
    note = noted(note, left_out(s.model))
    return Fit(
        scenario=s, serving=None, vary=field, value=value, limit_bytes=limit, tried=memo.tried, note=note
    )


def asked(choices: Choices, limit_bytes: int) -> Memo:
    """Evaluations of a training scenario's choices."""

    def evaluate(index: int) -> Tried:
        value = choices.value(index)
        return tried(choices.change(value), value)

    return Memo(evaluate, limit_bytes)


def fit_serving(s: Scenario, field: str, serving: Serving) -> Fit:
    """The same for an engine."""
    choices, limit = serving_choices(s, field, serving), s.cluster.gpu.memory_bytes
    memo = Memo(choices.evaluate, limit)
    if field == "gpus":
        index = next((n for n in range(choices.count or 0) if memo(n).fits), None)
    else:
        index = last_that_fits(memo, choices.count)
    value = None if index is None else choices.value(index)
    if index is None:
        note = f"the least needs {gb(least_of(memo).device_bytes)}; {FEWER if field == 'gpus' else SMALLER}"
    else:
        note = noted(choices.words(index), ended(memo, field), nodes(s, field, value))
    note = noted(note, left_out(s.model))
    return Fit(
        scenario=s, serving=serving, vary=field, value=value, limit_bytes=limit, tried=memo.tried, note=note
    )


def least_of(memo: Memo) -> Tried:
    """The evaluation that needs least; of equals the one of the smallest value."""
    return min(memo.tried, key=lambda one: one.device_bytes)


def ended(memo: Memo, field: str) -> str:
    """Say what the next value would need, or that none was found that does not fit."""
    over = [one for one in memo.tried if not one.fits]
    if not over:
        return "" if field == "gpus" else "every number that was looked at fits"
    near = over[-1] if field == "gpus" else over[0]
    over_bytes = near.device_bytes - memo.limit_bytes
    return f"{thousands(near.value)} would need {gb(near.device_bytes)}, {size(over_bytes)} too much"


def nodes(s: Scenario, field: str, gpus: int | None) -> str:
    """Say what GPUs leave idle of the nodes that hold them, if they leave any."""
    each = s.cluster.gpus_per_node
    idle = -(gpus or 0) % each if field == "gpus" else 0
    if not idle or not gpus:
        return ""
    number = (gpus + idle) // each
    return f"{counted(number, 'node')} of {each}, {idle} of the {gpus + idle} GPUs idle"


def offered(s: Scenario, value: int) -> str:
    """Name changes that make room for a choice of a scenario."""
    found = []
    for name, change in ways(s):
        try:
            changed = change()
            refuse_unbuilt(changed)
            if tried(changed, value).fits:
                found.append(name)
        except ValueError:
            continue
        if len(found) == OFFERED:
            break
    found = found or more_gpus(s)
    return f"what would fit: {' or '.join(found)}" if found else "no change here mends it"


def more_gpus(s: Scenario) -> list[str]:
    """Name the replicas that hold everything where each keeps its share only, if some do."""
    try:
        work, layout = replace(s.workload, recompute="full"), replace(s.layout, zero=3)
        shared = replace(s, workload=work, layout=layout)
        refuse_unbuilt(shared)
        choices = choices_of(shared, "gpus")
    except ValueError:
        return []
    memo = asked(choices, s.cluster.gpu.memory_bytes)
    index = first_that_fits(memo, choices.count)
    return [] if index is None else [f"zero=3 with recompute=full on {counted(choices.value(index), 'GPU')}"]

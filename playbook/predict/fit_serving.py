"""What can be varied in a serving load."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from playbook.predict.fit_search import Tried
from playbook.predict.fit_training import enough, with_layers
from playbook.predict.inference import InferenceMemory, inference_memory
from playbook.predict.inference_rules import works_for
from playbook.spec import Layout, Scenario, Serving

MOST_RANKS = 512
"""Ranks of one engine that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingChoices:
    """Values of one field in order, the memory of each, how many there are (None: no bound), what to add."""

    value: Callable[[int], int]
    ask: Callable[[int], InferenceMemory]
    count: int | None = None
    words: Callable[[int], str] = lambda index: ""

    def evaluate(self, index: int) -> Tried:
        """Memory of a choice."""
        found = self.ask(index)
        return Tried(
            value=self.value(index),
            peak_bytes=found.peak_bytes,
            device_bytes=found.device_bytes,
            fits=found.fits,
        )


def serving_choices(s: Scenario, vary: str, serving: Serving) -> ServingChoices:
    """Choices of a field of a serving load.

    Raises
    ------
    ValueError
        If the field is training's.
    """
    if vary == "micro_batch":
        raise ValueError("vary='micro_batch' is training's; an engine has vary='concurrency'")
    layout = engine_layout(s.layout)

    def ask(changed: Serving) -> InferenceMemory:
        return inference_memory(s.model, changed, layout, s.cluster)

    if vary == "sequence":
        first = serving.output + 1
        return ServingChoices(
            value=lambda index: first + index,
            ask=lambda index: ask(replace(serving, prompt=index + 1)),
            count=max(1, s.model.positions - serving.output) if s.model.positions else None,
        )
    if vary == "concurrency":
        return ServingChoices(
            value=lambda index: index + 1, ask=lambda index: ask(replace(serving, concurrency=index + 1))
        )
    if vary == "layers":
        return ServingChoices(
            value=lambda index: layout.pp + index,
            ask=lambda index: inference_memory(
                with_layers(s.model, layout.pp + index), serving, layout, s.cluster
            ),
        )
    return engines(s, serving)


def engine_layout(layout: Layout) -> Layout:
    """The part of a training layout that an engine has: degrees, and one chunk a rank."""
    return Layout(
        dp=layout.dp,
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        ep=layout.ep,
        etp=layout.etp,
        ep_rule=layout.ep_rule,
    )


def engines(s: Scenario, serving: Serving) -> ServingChoices:
    """Engines of one replica by their number of GPUs: TP inside a node, stages across, the widest TP."""
    per_node = s.cluster.gpus_per_node
    shapes = sorted(
        (tp * pp, -tp)
        for tp in works_for(s.model)
        if tp <= per_node
        for pp in range(1, min(s.model.layers, MOST_RANKS // tp) + 1)
    )
    one = {ranks: Layout(tp=-tp, pp=ranks // -tp) for ranks, tp in reversed(shapes)}
    sizes = sorted(one)
    return ServingChoices(
        value=lambda index: sizes[index],
        ask=lambda index: inference_memory(
            s.model, serving, one[sizes[index]], enough(s.cluster, sizes[index])
        ),
        count=len(sizes),
        words=lambda index: f"as tp={one[sizes[index]].tp} x pp={one[sizes[index]].pp}",
    )

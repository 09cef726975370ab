"""A rehearsal runs a rank's whole order without messages, and leaves the stages as they were."""

import pytest
import torch

import playbook as pb
from playbook.models.batch import make_batch
from playbook.models.put_off import Later
from playbook.models.transformer import Transformer
from playbook.runtime import pipeline_rehearsal
from playbook.runtime.pipeline_rehearsal import Scene, rehearse

MODEL = pb.Model(
    name="small",
    family="llama",
    layers=4,
    hidden=32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    ffn=64,
    vocabulary=64,
    max_sequence=16,
)


def stages_of(schedule, rank: int) -> torch.nn.ModuleDict:
    owned = [stage for stage, owner in enumerate(schedule.placement) if owner == rank]
    return torch.nn.ModuleDict(
        {
            str(stage): Transformer(
                MODEL, range(schedule.model_stage(stage), schedule.model_stage(stage) + 1)
            )
            for stage in owned
        }
    )


def microbatches():
    batch = make_batch(MODEL, sequences=4, sequence=16, seed=0, device=torch.device("cpu"))
    return batch.cut(4)


@pytest.mark.parametrize(("name", "stages", "chunks"), [("1f1b", 4, 1), ("zbv", 2, 2), ("dualpipe", 4, 1)])
@pytest.mark.parametrize("rank", [0, 1])
def test_every_forward_of_the_order_runs_and_no_gradient_stays(name, stages, chunks, rank):
    schedule = pb.schedule(name, stages, 4, chunks)
    held, seen = stages_of(schedule, rank), []
    for stage in held.values():
        stage.register_forward_hook(lambda *_: seen.append(1))
    rehearse(held, schedule, rank, microbatches(), split=True)
    assert len(seen) == sum(action.kind == "F" for action in schedule.orders[rank])
    assert all(parameter.grad is None for parameter in held.parameters())


def test_as_many_micro_batches_are_alive_as_the_schedule_says(monkeypatch):
    schedule, alive = pb.schedule("zbv", 2, 4, 2), []

    class Counting(Scene):
        def take(self, action) -> None:
            super().take(action)
            alive.append(len(self.outputs) + len(self.products))

    monkeypatch.setattr(pipeline_rehearsal, "Scene", Counting)
    rehearse(stages_of(schedule, 0), schedule, 0, microbatches(), split=True)
    assert max(alive) == schedule.simulate().peak_live[0]
    assert alive[-1] == 0


def test_without_a_split_the_layers_keep_their_own_backward():
    schedule = pb.schedule("zbv", 2, 4, 2)
    held = stages_of(schedule, 0)
    rehearse(held, schedule, 0, microbatches(), split=False)
    assert not isinstance(getattr(held, "later", None), Later)

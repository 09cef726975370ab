from dataclasses import replace

import pytest
import torch
from torch import nn

from playbook.models.transformer import Transformer
from playbook.runtime import pipeline_costs
from playbook.runtime.pipeline_costs import IN_A_ROW, medians, time_stage
from tests.shapes import TINY

TOKENS = (torch.ones(1, 8, dtype=torch.int64), torch.ones(1, 8, dtype=torch.int64))


class Moments:
    """Moments that lie as far apart as they are told."""

    def __init__(self, *spans_ms):
        self.now_ms, self.spans_ms = 0.0, list(spans_ms)

    def __call__(self, *_):
        made = Moments()
        made.now_ms = self.now_ms
        self.now_ms += self.spans_ms.pop(0) if self.spans_ms else 0.0
        return made

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return later.now_ms - self.now_ms


def test_the_first_runs_do_not_count_and_of_the_others_the_median():
    mark = Moments(900, 0, 900, 0, 1, 0, 9, 0, 3, 0, 3, 0, 2, 0, 4, 0, 8, 0)
    assert medians(lambda: [mark(), mark()]) == [0.003]


@pytest.mark.parametrize("layer", [0, 1, 3])
@pytest.mark.parametrize("split", [True, False])
def test_a_stage_is_timed_alone_whether_it_embeds_or_has_the_loss(layer, split):
    stage = Transformer(replace(TINY, layers=4), [layer])
    stages = nn.ModuleDict({str(layer): stage})
    forward_s, backward_s, input_s, weight_s = time_stage(stages, stage, TOKENS, layer == 3, split)
    assert min(forward_s, backward_s, input_s, weight_s) > 0
    assert split or input_s == weight_s == backward_s / 2
    assert all(parameter.grad is None for parameter in stage.parameters())


def test_the_parts_of_a_backward_are_what_lies_between_the_moments(monkeypatch):
    stage = Transformer(replace(TINY, layers=4), [1])
    whole = [10, 20, 0] * 9
    parts = [*[10, 5] * IN_A_ROW, *[15] * IN_A_ROW, 0] * 9
    monkeypatch.setattr(pipeline_costs, "mark", Moments(*whole, *parts))
    found = time_stage(nn.ModuleDict({"1": stage}), stage, TOKENS, False, True)
    assert found == pytest.approx((0.010, 0.020, 0.005, 0.015))

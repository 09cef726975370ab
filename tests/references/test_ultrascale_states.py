"""Nanotron team, The Ultra-Scale Playbook, 2025: weights, gradients and optimizer of four models, without and
with FP32 accumulation of gradients."""

import pytest

from playbook.predict.zero import zero_states

GB = 10**9
BF16_GRADIENT_BYTES = 2
"""What backward makes beside the FP32 gradients that it is added to."""


@pytest.mark.parametrize(
    ("billions", "plain", "accumulating"), [(1, 16, 20), (7, 112, 140), (70, 1120, 1400), (405, 6480, 8100)]
)
def test_states_of_one_rank(billions, plain, accumulating):
    parameters = billions * GB
    assert zero_states(parameters, "bf16-fp32master", 1)[0].total_bytes == plain * GB
    wide = zero_states(parameters, "bf16-fp32grad", 1)[0].total_bytes
    assert wide + BF16_GRADIENT_BYTES * parameters == accumulating * GB

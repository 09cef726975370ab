import time
from typing import Any

import pytest

from playbook.runtime.pipeline_emulation import Emulation

NOTHING: Any = None


@pytest.mark.parametrize("oversleep_s", [0.0, 0.001, 0.05])
def test_no_action_ends_before_its_time_however_long_the_machine_overslept_before(oversleep_s: float):
    clock = Emulation(costs=NOTHING, oversleep_s=oversleep_s)
    for _ in range(10):
        moment_s = time.monotonic() + 0.01
        clock._sleep_until(moment_s)
        assert time.monotonic() >= moment_s

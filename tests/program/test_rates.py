from dataclasses import FrozenInstanceError

import pytest

from playbook.program.rates import Rates


def test_rates_are_values():
    rates = Rates(flops_per_s=1.0, memory_bytes_per_s=2.0, links={})
    assert rates == Rates(flops_per_s=1.0, memory_bytes_per_s=2.0, links={})
    with pytest.raises(FrozenInstanceError):
        rates.flops_per_s = 3.0

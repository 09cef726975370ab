import pytest

from playbook.frameworks import policy
from playbook.program.policy import Context
from playbook.program.polynomial import symbol
from playbook.spec import recipe


def test_a_size_is_divided_exactly_or_refused():
    ctx = Context(policy=policy("textbook"), recipe=recipe("fp32"))
    assert ctx.divide(12, 4, "t") == 3
    assert ctx.divide(symbol("h"), 4, "t") == symbol("h").over("t")
    assert ctx.divide(symbol("h"), 1, "t") == symbol("h")
    with pytest.raises(ValueError, match="10 does not divide by 4"):
        ctx.divide(10, 4, "t")

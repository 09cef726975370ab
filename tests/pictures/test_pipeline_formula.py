import pytest

from playbook.pictures.pipeline_formula import formula_words
from playbook.pictures.pipeline_orders import timed_orders
from playbook.pictures.pipeline_setting import Costs, Setting


def words(name: str, **given):
    setting = Setting(**given)
    (one,) = timed_orders([name], setting)
    return formula_words(one, setting)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpipe", "(p − 1)(F + B) = 9"),
        ("interleaved-1f1b", "(p − 1)(f + b) = 9"),
        ("zb-h1", "(p − 1)(F + I − W) = 3"),
        ("zbv", "(p − 1) f = 3"),
        ("dualpipe-v", "(p − 1)(f&b + b − 3w) = 6"),
    ],
)
def test_a_formula_stands_with_its_number_and_holds_at_equal_costs(name, text):
    found = words(name)
    assert (found["text"], found["holds"], found["remark"]) == (text, True, "")


def test_where_a_formula_fails_both_numbers_and_the_reason_are_said():
    # Three micro-batches leave a slot of the four in a round empty.
    found = words("interleaved-1f1b", microbatches=3)
    assert not found["holds"]
    assert found["remark"].startswith("Formula 9, this order ")
    assert "microbatches=3" in found["remark"]


def test_latency_is_named_as_the_reason():
    assert "it is for no latency" in words("1f1b", costs=Costs(latency=0.1))["remark"]


def test_unequal_costs_of_backward_are_named_by_the_schedule():
    found = words("dualpipe-v", costs=Costs(backward_input=1.2, backward_weight=0.8))
    # The paper's formula gives 3 (3 + 2 - 2.4) = 7.8; the order idles 7.2.
    assert found["text"].endswith("= 7.8")
    assert found["remark"].startswith("Formula 7.8, this order 7.2: ")


def test_recomputation_is_part_of_backward():
    assert words("1f1b", costs=Costs(recompute=True))["text"] == "(p − 1)(F + B) = 12"

import pytest

import playbook as pb
from playbook.runtime.strategy_refusals import refuse_unrunnable


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ({"attention": "math"}, "attention='math': .* use attention='flash', or trace it"),
        ({"recipe": "muon"}, "recipe of a run on ranks='muon' is not known; valid are fp32"),
    ],
)
def test_what_no_code_on_ranks_does_is_refused_with_what_works(work, words):
    s = pb.Scenario(pb.model("toy-15m"), pb.Workload(sequence=64, **{"recipe": "fp32", **work}))
    with pytest.raises(ValueError, match=words):
        refuse_unrunnable("ddp", s, by_hand=False, fault=None)

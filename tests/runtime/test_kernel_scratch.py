import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile

import playbook as pb
from playbook.runtime.kernel_scratch import scratch_bytes
from playbook.runtime.trace_memory import Ledger


def allocated_inside(op, work):
    """Bytes of each allocation of real memory within an operation, as torch's profiler sees them."""
    with profile(profile_memory=True) as seen:
        work()
    found = []

    def visit(events, inside):
        for event in events:
            here = inside or event.name == op
            if here and event.name == "[memory]" and event.extra_fields.alloc_size > 0:
                found.append(event.extra_fields.alloc_size)
            visit(event.children, here)

    visit(seen.profiler.kineto_results.experimental_event_tree(), False)
    return found


def test_a_row_of_scores_is_looked_through_by_one_byte_a_score_and_one_a_row():
    q = torch.randn(2, 4, 32, 8)

    def work():
        with sdpa_kernel(SDPBackend.MATH):
            torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    scores, rows = 2 * 4 * 32 * 32, 2 * 4 * 32
    sizes = allocated_inside("aten::_safe_softmax", work)
    assert {4 * scores, scores, rows} <= set(sizes)  # the result, and what is freed again
    assert scratch_bytes("aten::_safe_softmax", torch.empty(2, 4, 32, 32), "cpu") == scores + rows


@pytest.mark.parametrize(("kernels", "expected"), [("cpu", 0), ("cuda", 4 * 6 * 8)])
def test_cuda_multiplies_before_it_sums_in_the_softmaxs_backward(kernels, expected):
    assert scratch_bytes("aten::_softmax_backward_data", torch.empty(6, 8), kernels) == expected
    assert scratch_bytes("aten::mul", torch.empty(6, 8), kernels) == 0
    assert scratch_bytes("aten::topk", (torch.empty(2), torch.empty(2)), kernels) == 0


def test_the_ledger_holds_scratch_for_one_event_only():
    ledger = Ledger(kernels="cuda")
    ledger.before(5, "aten::_softmax_backward_data", None, ())
    made = torch.empty(6, 8)
    assert ledger.after((), made) == 4 * 6 * 8  # what it made; scratch is not its result
    scratch, result = ledger.holdings
    assert (scratch.size_bytes, scratch.birth, scratch.death, scratch.term) == (192, 5, 5, "temporary")
    assert (result.size_bytes, result.birth, result.death) == (192, 5, None)


def test_an_h200_took_as_much_for_grouped_heads_in_fp32():
    """Peaks of forward and of backward by the allocator, torch 2.11: rank 9 of 16 replicas of 3 layers of
    Mistral 7B, sequence 4096, micro-batch 2."""
    whole = pb.model("mistral-7b-v0.1")
    model = pb.Model(**{**whole.to_dict(), "layers": 3, "name": "3 layers"})
    work = pb.Workload(sequence=4096, micro_batch=2, recipe="fp32", kernels="cuda")
    predicted = pb.training_memory(pb.Scenario(model, work, pb.Layout(dp=16), framework="torch"), rank=9)
    assert predicted.walk.peak_of("F") == pytest.approx(40_773_862_912, rel=1e-5)
    assert predicted.walk.peak_of("B") == pytest.approx(49_183_213_568, rel=1e-5)

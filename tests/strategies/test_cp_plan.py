"""Context parallelism by plan: tokens, scores, bytes on the wire, state, and what is refused."""

from dataclasses import replace

import pytest

import playbook as pb
from playbook.frameworks import policies, policy
from playbook.predict.stages import blocks_of, context, templates
from playbook.program.op import At
from playbook.program.polynomial import constant
from playbook.spec import Workload, cluster
from playbook.strategies import plan
from tests.shapes import scenario_of

LAYER, ROOT = 30_848, 16_448
PSI = 4 * LAYER + ROOT
KEY = 2 * 32 * 2 * 16
"""Bytes of one layer's keys, as of its values: 32 tokens, 2 heads of 16 features, BF16."""

QUERY = 2 * 32 * 4 * 16
METHODS = ("ring", "all-gather", "ulysses")


def cp_traffic(s, phase=None):
    return pb.traffic(s).select(axis="cp", phase=phase)


@pytest.mark.parametrize("method", METHODS)
def test_activations_of_a_layer_are_those_of_one_rank_over_c(scenario, method):
    one, two = (pb.program(scenario(cp=cp, cp_method=method)).memory() for cp in (1, 2))
    layers = one.peak_bytes - sum(one.state.values())
    extra = 4 * QUERY // 2 if method == "ulysses" else 0  # the output twice: by heads and by tokens
    assert two.peak_bytes - sum(two.state.values()) == layers // 2 + extra


def test_what_every_method_sends_forward_and_back(scenario):
    c = 2
    ring, gathered, heads = (scenario(cp=c, cp_method=method) for method in METHODS)
    # A hop sends a rank's own keys and values; backward sends their gradients too.
    hop = 2 * KEY // c
    assert cp_traffic(ring, "F").payload.tolist() == [hop] * 4
    assert cp_traffic(ring, "B").payload.tolist() == [2 * hop] * 4
    assert cp_traffic(ring).wire_bytes == 4 * 3 * (c - 1) * hop
    # A gather's payload is what it makes; half of it comes over the wire.
    assert cp_traffic(gathered, "F").by_collective == {"all_gather@cp": 4 * 2 * KEY}
    assert cp_traffic(gathered, "B").by_collective == {
        "all_gather@cp": 4 * 2 * KEY,
        "reduce_scatter@cp": 4 * 2 * KEY,
    }
    assert cp_traffic(gathered).wire_bytes == cp_traffic(ring).wire_bytes
    # Four exchanges each way: q, k, v before the core and its output behind.
    assert cp_traffic(heads).count == 4 * 8
    assert cp_traffic(heads).payload_bytes == 4 * 2 * (2 * QUERY + 2 * KEY) // c


def test_four_ranks_pass_keys_three_times(scenario):
    found = cp_traffic(scenario(cp=4))
    assert found.count == 4 * 2 * 3
    assert found.wire_bytes == 4 * 3 * 3 * (2 * KEY // 4)


def test_the_70b_example_sends_four_million_bytes_a_hop():
    """Llama 3.1 8B, 8192 tokens over 4 ranks, tp=2: 2 · 2048 · (8/2) · 128 · 2 bytes."""
    layout = pb.Layout(cp=4, tp=2)
    s = pb.Scenario(pb.model("llama-3.1-8b"), Workload(sequence=8192), layout)
    assert set(cp_traffic(s, "F").payload.tolist()) == {2 * 2048 * 4 * 128 * 2}


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize(("dp", "cp"), [(1, 4), (2, 2), (4, 1)])
def test_state_is_shared_among_dp_and_cp(scenario, zero, dp, cp):
    expected = {1: 4 * PSI + 12 * PSI // 4, 2: 2 * PSI + 14 * PSI // 4, 3: 16 * PSI // 4}
    assert sum(pb.program(scenario(dp=dp, cp=cp, zero=zero)).memory().state.values()) == expected[zero]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_gradients_are_reduced_over_dp_and_cp_as_one_group_on_axis_dp(scenario, zero):
    one, two = (
        pb.traffic(scenario(dp=dp, cp=cp, zero=zero)).select(axis="dp") for dp, cp in ((4, 1), (2, 2))
    )
    assert one.by_collective == two.by_collective
    assert one.wire_bytes == two.wire_bytes


def core_share(s, rank):
    program = pb.program(s, rank=rank)
    label = program.ops.index("sdpa")
    return int(program.rows.flops[program.rows.op == label].sum())


def test_contiguous_pieces_leave_the_last_rank_most_scores_and_zigzag_ones_do_not(scenario):
    """Shares of 1, 3, 5 and 7 sixteenths: ring-flash-attention issue 2."""
    whole = core_share(scenario(), 0)
    last = [core_share(scenario(cp=4, cp_split="contiguous"), rank) for rank in range(4)]
    assert [share * 16 / whole for share in last] == [1, 3, 5, 7]
    assert {core_share(scenario(cp=4), rank) for rank in range(4)} == {whole // 4}
    assert {
        core_share(scenario(cp=2, cp_split="contiguous", cp_method="ulysses"), rank) for rank in (0, 1)
    } == {whole // 2}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("split", ["zigzag", "contiguous"])
def test_all_ranks_together_do_the_work_of_one(scenario, method, split):
    tp = 1 if method == "ulysses" else 2  # two key-value heads are all that Ulysses can share out
    s = scenario(cp=2, tp=tp, cp_method=method, cp_split=split, recompute="full")
    whole = pb.program(scenario(recompute="full")).flops
    assert sum(pb.program(s, rank=rank).flops for rank in range(2 * tp)) == whole


def test_ring_buffers_are_memory_where_the_framework_counts_buffers(scenario):
    s = scenario("torch", cp=2, recipe="bf16")
    layer = blocks_of(s, 0, context(s))[1]
    sizes = {tensor.name: tensor.bytes for tensor in layer.tensors if tensor.name.startswith("ring")}
    assert sizes == {
        "ring buffers": 2 * 2 * KEY // 2,
        "ring part": QUERY // 2,
        "ring sum": 2 * QUERY // 2,
        "ring log-sum-exps": 4 * 16 * 4,
        "ring buffers again": 4 * 2 * KEY // 2,
        "ring query gradient": QUERY // 2,
        "ring gradients": 2 * KEY // 2,
    }
    paper = scenario(cp=2)
    assert not [t for t in blocks_of(paper, 0, context(paper))[1].tensors if t.name.startswith("ring")]


def test_recomputation_passes_keys_again(scenario):
    plain, again = (cp_traffic(scenario(cp=2, recompute=mode)) for mode in ("none", "full"))
    assert again.select(phase="R").payload_bytes == plain.select(phase="F").payload_bytes


def test_a_core_that_runs_again_passes_keys_again_in_real_code_s_accounting_too(scenario):
    plain, again = (
        cp_traffic(scenario("torch", cp=2, recipe="bf16", recompute=mode)) for mode in ("none", "selective")
    )
    assert again.select(phase="R").payload_bytes == plain.select(phase="F").payload_bytes


def built(framework):
    """A scenario of the small model that a framework builds, and its context in symbols."""
    for fields in (
        {"recipe": "bf16"},
        {"recipe": "bf16-fp32grad"},
        {"recipe": "fsdp2-mixed", "zero": 3, "dp": 2},
    ):
        try:
            s = scenario_of(framework, **fields)
            return s, context(s, symbolic=True)
        except ValueError:
            continue
    pytest.fail(f"no recipe here is one of {framework}'s")


@pytest.mark.parametrize("framework", sorted(policies()))
def test_every_tensor_of_a_template_grows_with_the_tokens_or_says_that_it_does_not(framework):
    """Else context parallelism would divide what is as large as weights."""
    s, ctx = built(framework)
    for block in templates(s, 0, ctx):
        for tensor in block.tensors:
            born = tensor.birth if isinstance(tensor.birth, At) else At("F")
            if not tensor.per_token or born.segment in "SO" or tensor.term in ("gradients", "workspace"):
                continue
            powers = [dict(monomial) for monomial in constant(tensor.bytes).coefficients]
            assert all(power.get("s", 0) >= 1 for power in powers), (block.name, tensor.name)


@pytest.mark.parametrize(
    ("fields", "sequence", "text"),
    [
        (
            {"cp": 4},
            36,
            r"2 x cp \(cp_split=zigzag\) = 8 does not divide .*; cp in 1, 2, 3, 6, 9 .*, cp_split=contig",
        ),
        (
            {"cp": 4, "cp_split": "contiguous"},
            34,
            "cp=4 does not divide sequence=34; cp in 1, 2 would work, or a sequence padded to 36",
        ),
        (
            {"cp": 4, "cp_method": "ulysses"},
            32,
            "cp=4 x tp=1 = 4 does not divide kv_heads=2 .*cp in 1, 2 would work, or cp_method ring or",
        ),
        ({"cp": 2, "tp": 2, "cp_method": "ulysses"}, 32, "cp in 1 would work"),
        # Users' cases: Megatron-LM issue 1669 and EasyContext issue 47.
        ({"cp": 2}, 7, "cp in none would work, or a sequence padded to 8"),
        ({"cp": 4}, 2999, "or a sequence padded to 3000"),
    ],
)
def test_sequences_and_heads_that_do_not_divide_are_refused_with_what_does(scenario, fields, sequence, text):
    with pytest.raises(ValueError, match=text):
        scenario(sequence=sequence, **fields)


def test_ulysses_needs_no_zigzag_pieces(scenario):
    assert scenario(cp=2, cp_method="ulysses", sequence=34).world == 2


def test_a_long_sequence_over_more_ranks_stays_flat():
    """torchtitan's sweep: 8 GPUs, one sequence a rank of cp, tokens a rank and shards constant."""
    peaks = []
    for dp, cp in ((8, 1), (4, 2), (2, 4), (1, 8)):
        work = Workload(sequence=32_768 * cp, recipe="fsdp2-mixed", recompute="full")
        layout = pb.Layout(dp=dp, cp=cp, zero=3, cp_method="all-gather")
        s = pb.Scenario(pb.model("llama-3.1-8b"), work, layout, cluster("1x8-h100"), framework="torch")
        peaks.append(pb.program(s).memory().peak_bytes)
    assert max(peaks) / min(peaks) < 1.03


def test_a_policy_that_names_no_output_of_its_core_is_told_so(scenario):
    s = scenario(cp=2)
    rules = policy("textbook")
    layer = templates(s, 0, context(s))[1]
    nameless = replace(layer, tensors=tuple(t for t in layer.tensors if t.name != "attention output"))
    ctx = replace(context(s), policy=rules)
    with pytest.raises(ValueError, match="call the tensor 'attention output'"):
        plan("cp").rewrite((nameless,), ctx)


def test_attention_without_a_fused_core_is_refused_with_what_has_one(scenario):
    with pytest.raises(
        ValueError, match="cp=2 with attention that is no fused kernel .*use attention='flash'"
    ):
        pb.program(scenario("torch", cp=2, recipe="fp32"))

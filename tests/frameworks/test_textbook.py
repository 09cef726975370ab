"""The papers' formulas against the program: activations as Korthikanti et al., 2022, equations 1 to 6."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbook.frameworks.textbook import POLICY
from playbook.program.policy import Context, Sizes
from playbook.program.polynomial import constant
from playbook.program.recompute import recompute
from playbook.spec import Model, Workload, recipe
from playbook.strategies import plan


def gpt(hidden, heads, layers=1, vocabulary=64):
    return Model(
        name="gpt",
        family="gpt2",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=4 * hidden,
        vocabulary=vocabulary,
        gated=False,
        norm="layer",
        positions=4096,
        max_sequence=4096,
    )


def saved_bytes(model, sequence, batch, mode="none", attention="math", tp=1, sequence_parallel=False):
    """Bytes that one layer of a model keeps for backward."""
    work = Workload(sequence=sequence, micro_batch=batch, attention=attention)
    block = POLICY.layer(Sizes.of(model, work, recipe("bf16-fp32master")))
    ctx = Context(
        policy=POLICY,
        recipe=recipe("bf16-fp32master"),
        tp=tp,
        kv_heads=model.kv_heads,
        sequence_parallel=sequence_parallel,
    )
    (block,) = recompute(plan("tp").rewrite((block,), ctx), mode, POLICY.stops_early)
    return sum(tensor.bytes for tensor in block.tensors if tensor.saved)


SHAPES = st.tuples(
    st.sampled_from([16, 32, 64]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([32, 64, 128]),
    st.sampled_from([4, 8]),
)


@settings(max_examples=25, deadline=None)
@given(SHAPES)
def test_a_gpt_layer_keeps_sbh_times_34_plus_5as_over_h(shape):
    s, b, h, a = shape
    assert saved_bytes(gpt(h, a), s, b) == s * b * h * 34 + 5 * a * s * s * b


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.sampled_from([2, 4]))
def test_tensor_parallelism_divides_24_of_the_34_and_the_scores(shape, t):
    s, b, h, a = shape
    assert saved_bytes(gpt(h, a), s, b, tp=t) * t == s * b * h * (10 * t + 24) + 5 * a * s * s * b


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.sampled_from([2, 4]))
def test_sequence_parallelism_divides_all_of_it(shape, t):
    s, b, h, a = shape
    found = saved_bytes(gpt(h, a), s, b, tp=t, sequence_parallel=True)
    assert found * t == s * b * h * 34 + 5 * a * s * s * b


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.sampled_from([1, 2, 4]))
def test_selective_recompute_drops_the_scores(shape, t):
    s, b, h, a = shape
    assert saved_bytes(gpt(h, a), s, b, "selective", tp=t) * t == s * b * h * (10 * t + 24)
    if t > 1:
        assert saved_bytes(gpt(h, a), s, b, "selective", tp=t, sequence_parallel=True) * t == 34 * s * b * h


@settings(max_examples=25, deadline=None)
@given(SHAPES, st.sampled_from([1, 2, 4]))
def test_full_recompute_keeps_two_sbh(shape, t):
    s, b, h, a = shape
    assert saved_bytes(gpt(h, a), s, b, "full", tp=t) == 2 * s * b * h


def test_flash_attention_keeps_log_sum_exps_for_the_scores():
    found = saved_bytes(gpt(64, 8), 32, 2, attention="flash")
    assert found == 34 * 32 * 2 * 64 + 4 * 32 * 2 * 8


@pytest.mark.parametrize(
    ("hidden", "heads", "expected"),
    [(12_288, 96, 80), (20_480, 128, 64)],
)
def test_the_scores_share_of_gpt3_and_mt_nlg(hidden, heads, expected):
    """Korthikanti et al., table 2: 5as/h is 80 for GPT-3 and 64 for MT-NLG at 2048 tokens."""
    per_sbh = (saved_bytes(gpt(hidden, heads), 2048, 1) - 34 * 2048 * hidden) / (2048 * hidden)
    assert per_sbh == expected


def test_a_llama_layer_of_70b_keeps_33_and_a_half_bytes_a_token_and_feature(llama_70b):
    """2 + 2 + 2.5 + 2 + 4 + 21, and 4 bytes a head of log-sum-exps: 4·64/8192 = 0.03."""
    found = saved_bytes(llama_70b, 4096, 1, attention="flash") / (4096 * 8192)
    assert found == 2 + 2 + 2.5 + 2 + 4 + 21 + 4 * 64 / 8192


@pytest.fixture
def llama_70b():
    from playbook.spec import model

    return model("llama-3.1-70b")


def test_the_ends_keep_four_sbh_and_the_logits_in_fp32():
    """Korthikanti et al., section 4.3: 4sbh(1 + v/h) for the output layer."""
    s, b, h, v = 32, 2, 64, 128
    sizes = Sizes.of(gpt(h, 8, vocabulary=v), Workload(sequence=s, micro_batch=b), recipe("bf16-fp32master"))
    head = POLICY.head(sizes)
    kept = [t for t in head.tensors if t.saved or t.name == "input"]
    assert sum(tensor.bytes for tensor in kept) == 4 * s * b * h + 4 * s * b * v


@pytest.mark.parametrize("attention", ["flash", "math"])
@pytest.mark.parametrize("name", ["gpt2", "llama-3.1-8b", "qwen3-8b", "qwen2.5-7b"])
def test_symbols_give_the_same_bytes_as_numbers(name, attention):
    from playbook.spec import model

    shape, work = model(name), Workload(sequence=48, micro_batch=3, attention=attention)
    numeric, symbolic = (
        Sizes.of(shape, work, recipe("bf16-fp32master"), symbolic=flag) for flag in (False, True)
    )
    values = {"b": 3, "s": 48, "h": shape.hidden, "a": shape.heads, "g": shape.kv_heads}
    values |= {"k": shape.head_dim, "f": shape.ffn, "V": shape.vocabulary}
    for template in (POLICY.embedding, POLICY.layer, POLICY.head):
        numbers, symbols = template(numeric), template(symbolic)
        assert [t.bytes for t in numbers.tensors] == [constant(t.bytes).at(values) for t in symbols.tensors]
        assert [w.numel for w in numbers.weights] == [constant(w.numel).at(values) for w in symbols.weights]
        for letter in "FB":
            pairs = zip(numbers.segment(letter), symbols.segment(letter), strict=True)
            assert all(n.flops == constant(s.flops).at(values) for n, s in pairs)


def llama(**fields):
    sizes = {"hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 48, "vocabulary": 64}
    return Model(name="llama", family="llama", layers=2, max_sequence=64, **{**sizes, **fields})


def test_norms_on_both_sides_keep_the_outputs_of_both_branches():
    """Gemma: two more norms, each with an input of 2·T·h bytes; their outputs are added, not kept."""
    assert saved_bytes(llama(sandwich=True), 32, 2) - saved_bytes(llama(), 32, 2) == 2 * 2 * 64 * 32


def test_norms_behind_the_branches_keep_as_much_as_norms_before_them():
    """OLMo 2: the products read the stream itself, the norms what the products make."""
    assert saved_bytes(llama(post_norm=True), 32, 2) == saved_bytes(llama(), 32, 2)


def test_norms_behind_a_branch_stand_between_its_last_product_and_the_sum():
    for fields in ({"sandwich": True}, {"post_norm": True}):
        sizes = Sizes.of(llama(**fields), Workload(sequence=32), recipe("bf16-fp32master"))
        names = [row.name for row in POLICY.layer(sizes).forward]
        place = names.index("post_attention_layernorm/norm#0")
        assert names[place - 1 : place + 2 : 2] == ["self_attn.o_proj/mm#0", "/add#0"]
        assert names[-2:] == ["post_feedforward_layernorm/norm#0", "/add#1"]


def test_a_gated_gelu_keeps_three_times_its_features():
    assert saved_bytes(llama(activation="gelu"), 32, 2) == saved_bytes(llama(), 32, 2)


def test_sinks_are_complete_with_the_core_and_keep_nothing():
    sizes = Sizes.of(llama(sinks=True), Workload(sequence=32), recipe("bf16-fp32master"))
    (sinks,) = [w for w in POLICY.layer(sizes).weights if w.name == "self_attn.sinks"]
    assert (sinks.shape, sinks.ready.row) == ((4,), "self_attn/sdpa_backward#0")
    assert saved_bytes(llama(sinks=True), 32, 2) == saved_bytes(llama(), 32, 2)


def test_a_window_leaves_a_band_of_the_score_matrix_and_the_same_bytes():
    """4·b·s·w·a·k FLOPs in a layer with a window, 4·b·s²·a·k in one without or with a wider one."""
    model = llama(window=8, full_layers=(1,))
    sizes = Sizes.of(model, Workload(sequence=32, micro_batch=2), recipe("bf16-fp32master"))
    blocks = [POLICY.layer(sizes, number) for number in (0, 1)]
    cores = [row.flops for block in blocks for row in block.forward if row.op == "sdpa"]
    assert cores == [4 * 2 * 32 * 8 * 4 * 8, 4 * 2 * 32 * 32 * 4 * 8]
    assert blocks[0].tensors == blocks[1].tensors
    short = Sizes.of(model, Workload(sequence=8), recipe("bf16-fp32master"))
    assert short.windows == (None, None)


def test_attention_by_the_math_kernel_keeps_the_whole_score_matrix_under_a_window():
    assert saved_bytes(llama(window=8), 32, 2) == saved_bytes(llama(), 32, 2)

import playbook as pb
from playbook.predict.suspects import power, suspects
from playbook.program.polynomial import symbol

S = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(sequence=1000), pb.Layout(dp=4, zero=1))


def named(name):
    return [one for one in suspects(S) if one.name == name]


def test_the_state_of_a_block_is_told_weight_by_weight():
    (moment,) = named("mlp.gate_proj.weight moment")
    assert moment.bytes == 4 * 4096 * 14_336 // 4
    assert moment.formula == "4 bytes x 14336 x 4096 / 4"
    assert moment.count == 2 * 32
    assert named("all moments, one of 2")[0].together


def test_a_tensor_that_a_rank_holds_whole_is_divided_by_nothing():
    (weight,) = named("mlp.gate_proj.weight parameters")
    assert weight.formula == "2 bytes x 14336 x 4096"
    assert weight.state


def test_experts_are_shared_among_fewer_ranks_than_dense_weights():
    # dp 8, ep 8: each rank has 8 of 64 experts to itself; attention's weights are shared among all 8.
    s = pb.Scenario(pb.model("deepseek-v2-lite"), pb.Workload(sequence=1000), pb.Layout(dp=8, ep=8, zero=1))
    found = {one.name: one for one in suspects(s)}
    experts, output = (found[f"{name} moment"] for name in ("mlp.experts.up_proj", "self_attn.o_proj.weight"))
    assert (experts.formula, experts.bytes) == ("4 bytes x 8 x 1408 x 2048", 4 * 8 * 1408 * 2048)
    assert (output.formula, output.bytes) == ("4 bytes x 2048 x 2048 / 8", 4 * 2048 * 2048 // 8)


def test_whole_weights_that_ranks_are_dealt_are_told_whole():
    # torch's ZeroRedundancyOptimizer cuts no parameter: the token table's moment is 128256 x 4096 x 4 bytes.
    found = {one.name: one for one in suspects(pb.Scenario(S.model, S.workload, S.layout, framework="torch"))}
    assert found["embed_tokens.weight moment"].bytes == 128_256 * 4096 * 4
    assert found["mlp.up_proj.weight moment"].formula == "4 bytes x 14336 x 4096"


def test_muon_keeps_one_momentum_of_a_projection_and_two_of_the_head():
    s = pb.Scenario(pb.model("llama-3.1-8b"), pb.Workload(sequence=1000, recipe="muon"))
    found = {one.name: one for one in suspects(s)}
    assert found["mlp.gate_proj.weight moments"].bytes == 4 * 4096 * 14_336
    assert found["lm_head.weight moment"].bytes == 4 * 4096 * 128_256


def test_what_layers_keep_is_told_alone_and_together():
    (alone,), (every,) = named("input")[:1], [one for one in suspects(S) if one.name == "32 x input"]
    assert every.bytes == 32 * alone.bytes == 32 * 1000 * 4096 * 2
    assert every.together
    assert not alone.together


def test_growth_is_read_off_the_formula():
    b, s, h = map(symbol, "bsh")
    assert power(2 * b * s * h, "s") == 1
    assert power(2 * b * s * s, "s") == 2
    assert power(2 * h, "s") == 0
    assert power(2 * s * h + h, "s") is None


def test_sizes_are_solved_for_sequences_and_micro_batches():
    (logits,) = named("logits")
    assert logits.sequence_of(3 * logits.bytes, 1000) == 3000
    assert logits.micro_batch_of(3 * logits.bytes, 1) == 3
    (moments,) = named("mlp.gate_proj.weight moment")
    assert moments.sequence_of(10, 1000) is None
    assert moments.micro_batch_of(10, 1) is None

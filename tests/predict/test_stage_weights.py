import pytest

import playbook as pb


def test_a_rank_holds_copies_besides_its_share():
    # A layer of toy-15m has two norms of 384 that both ranks hold, the last stage one more.
    first, last = pb.stage_weights(pb.model("toy-15m"), pb.Layout(pp=2, tp=2))
    assert (first.layers, last.layers) == (3, 3)
    assert first.rank - first.share == 3 * 384
    assert last.rank - last.share == 3 * 384 + 192
    assert first.parameters + last.parameters == pb.model("toy-15m").parameters


def test_key_value_heads_are_copied_where_they_are_fewer_than_ranks():
    model = pb.model("llama-3.1-8b")
    (eight,) = pb.stage_weights(model, pb.Layout(tp=8))
    (sixteen,) = pb.stage_weights(model, pb.Layout(tp=16))
    norms = 65 * 4096
    assert eight.rank - eight.share == norms * 7 / 8
    copied = 32 * 2 * 1024 * 4096  # both projections in all layers: an eighth each, not a sixteenth
    assert sixteen.rank - sixteen.share == norms * 15 / 16 + copied / 16


def test_a_tied_table_is_on_the_first_and_the_last_stage():
    model = pb.model("llama-3.2-1b")
    stages = pb.stage_weights(model, pb.Layout(pp=2))
    assert sum(stage.parameters for stage in stages) == model.parameters + model.embedding
    assert [stage.rank for stage in stages] == [stage.parameters for stage in stages]


def test_experts_are_divided_inside():
    model = pb.model("mixtral-8x7b")
    (one,) = pb.stage_weights(model, pb.Layout(tp=2))
    copied = 32 * (8 * 4096 + 2 * 4096) + 4096  # routers and norms
    assert one.rank - one.share == copied / 2


def test_stages_that_do_not_fit_the_model_are_refused():
    with pytest.raises(ValueError, match="pp=3 x chunks=1 = 3 stages do not divide layers=61"):
        pb.stage_weights(pb.model("deepseek-v3"), pb.Layout(pp=3))

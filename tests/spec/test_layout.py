import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import playbook as pb


def test_the_world_of_the_70b_example_is_512():
    assert pb.Layout(tp=8, pp=4, cp=4, dp=4).world == 512
    assert pb.Layout(tp=8, pp=8, cp=2, dp=4).world == 512


def test_zero_and_a_folded_ep_never_change_the_world():
    assert pb.Layout(dp=8, tp=2, zero=3, ep=8).world == 16


def test_an_independent_ep_is_a_factor_of_the_world():
    assert pb.Layout(dp=2, tp=2, ep=4, ep_rule="independent").world == 16


def test_ranks_count_tp_first_then_cp_then_dp_then_pp():
    layout = pb.Layout(tp=2, cp=3, dp=4, pp=5)
    assert layout.coordinates(0) == {"tp": 0, "cp": 0, "dp": 0, "pp": 0}
    assert layout.coordinates(1) == {"tp": 1, "cp": 0, "dp": 0, "pp": 0}
    assert layout.coordinates(2) == {"tp": 0, "cp": 1, "dp": 0, "pp": 0}
    assert layout.coordinates(6) == {"tp": 0, "cp": 0, "dp": 1, "pp": 0}
    assert layout.coordinates(24) == {"tp": 0, "cp": 0, "dp": 0, "pp": 1}
    assert layout.group("dp", 7) == (1, 7, 13, 19)


degrees = st.integers(1, 5)


@settings(max_examples=50, deadline=None)
@given(tp=degrees, cp=degrees, dp=degrees, pp=degrees, data=st.data())
def test_rank_and_coordinates_are_inverse(tp, cp, dp, pp, data):
    layout = pb.Layout(tp=tp, cp=cp, dp=dp, pp=pp)
    rank = data.draw(st.integers(0, layout.world - 1))
    assert layout.rank(**layout.coordinates(rank)) == rank


def test_chunks_default_to_two_for_a_v_and_to_one_elsewhere():
    assert pb.Layout().chunks == 1
    assert pb.Layout(schedule="ZBV").chunks == 2
    assert pb.Layout(schedule="zbv").stages == 2
    assert pb.Layout(pp=4, schedule="interleaved-1f1b", chunks=3).stages == 12


def test_state_is_shared_among_dp_and_cp_inside_a_replica():
    assert pb.Layout(dp=8, cp=2, dp_replicate=4).shard_ranks == 4


def test_an_experts_state_is_shared_among_the_ranks_that_hold_the_same_experts():
    assert pb.Layout(dp=8, cp=2, tp=4, ep=4, etp=2, dp_replicate=2).expert_shard_ranks == 4
    assert pb.Layout(dp=8, tp=2, ep=4, ep_rule="independent").expert_shard_ranks == 16


@pytest.mark.parametrize(
    ("fields", "peers"),
    [
        ({"dp": 2, "tp": 2, "cp": 2, "ep": 4}, 2),  # torchtitan pull 4831: efsdp
        ({"dp": 2, "tp": 2, "cp": 2, "ep": 8}, 1),
        ({"dp": 2, "pp": 2, "ep": 2}, 1),  # NeMo Speech issue 14838: expert DP
    ],
)
def test_users_layouts_leave_experts_so_many_peers(fields, peers):
    assert pb.Layout(**fields).expert_shard_ranks == peers


def test_each_axis_names_the_ranks_that_communicate_on_it():
    sizes = pb.Layout(dp=8, cp=2, tp=4, pp=3, ep=4, dp_replicate=2).group_sizes
    assert sizes == {"tp": 4, "cp": 2, "ep": 4, "dp": 8, "pp": 3, "dp_replicate": 2}


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"dp": 0}, ValueError, "dp=0 must be at least 1; use dp=1 or more"),
        ({"tp": -2}, ValueError, "tp=-2 must be at least 1"),
        ({"pp": 1.5}, TypeError, "pp=1.5 must be a whole number"),
        ({"zero": 4}, ValueError, "zero=4 is not a ZeRO stage; stages are 0, 1, 2 and 3"),
        ({"schedule": "2f2b"}, ValueError, "schedule='2f2b' is not known; valid are gpipe, 1f1b"),
        (
            {"chunks": 2},
            ValueError,
            "chunks=2 but schedule 1f1b holds one chunk a rank; use chunks=1 or one of",
        ),
        ({"schedule": "zbv", "chunks": 3}, ValueError, "shaped like a V; use chunks=2"),
        (
            {"dp": 6, "dp_replicate": 4},
            ValueError,
            "dp_replicate=4 does not divide dp=6; use one of 1, 2, 3, 6",
        ),
        (
            {"dp": 4, "ep": 3},
            ValueError,
            "ep=3 x etp=1 does not divide dp=4 x cp=1 x tp=1 = 4.*ep in 1, 2, 4",
        ),
        (
            {"pp": 2, "stage_layers": (3,)},
            ValueError,
            "stage_layers has 1 numbers but pp=2 x chunks=1 = 2 stages",
        ),
        ({"sequence_parallel": 1}, TypeError, "sequence_parallel=1 must be True or False"),
    ],
)
def test_bad_layouts_are_refused_with_what_would_work(fields, error, text):
    with pytest.raises(error, match=text):
        pb.Layout(**fields)


def test_places_outside_the_mesh_are_refused():
    layout = pb.Layout(dp=2)
    with pytest.raises(ValueError, match="rank=2 but the world has 2 ranks; use 0 to 1"):
        layout.coordinates(2)
    with pytest.raises(ValueError, match="dp=2 but the axis has 2 places"):
        layout.rank(dp=2)
    with pytest.raises(ValueError, match="no axis 'np'; axes are tp, cp, dp, pp"):
        layout.rank(np=0)


def test_unknown_words_have_no_place():
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        pb.Layout(depth=3)  # type: ignore[call-arg]

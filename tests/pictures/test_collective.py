import pytest

from playbook.collectives import collective
from playbook.pictures.collective import (
    collective_copies,
    collective_picture,
    collective_view,
    crossing_bytes,
)
from playbook.pictures.collective_run import (
    MeasuredCollective,
    measured_collective,
    measured_data,
    run_levers,
    with_step,
)
from playbook.pictures.fit import fit_link
from playbook.spec import Link

LINK = Link(latency_s=1e-3, bandwidth_bytes_per_s=1e9)
MIB = 2**20


def view(op="all_reduce", algorithm="ring", ranks=4, size=MIB, step=None, link=LINK):
    return collective_view(op, algorithm, ranks, size, step, link, "a link")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (0, "Before the all-reduce every rank has a buffer; nothing is sent yet."),
        (
            2,
            "After step 2 the partial sums hold three ranks each: "
            "a third of the bytes sent, nothing is finished yet.",
        ),
        (
            3,
            "After step 3 every rank owns one finished chunk: "
            "half the bytes sent, no rank holds the whole sum yet.",
        ),
        (6, "After step 6 every rank holds the whole sum, having sent 1.5 times its buffer."),
    ],
)
def test_the_headline_says_where_a_ring_all_reduce_stands(step, words):
    assert collective_picture(view(step=step))["headline"][0] == words


def test_bytes_so_far_are_the_steps_taken():
    assert collective_picture(view(step=3))["sent"] == "768 of 1\u2009536 KiB sent per rank"
    assert collective_picture(view(step=6))["sent"] == "1.5 MiB of 1.5 MiB sent per rank"


def test_cells_are_contributors_as_bits_up_to_eight_ranks_and_counts_beyond():
    grid = collective_picture(view(step=6))["grid"]
    assert set(grid["after"]) == {0b1111}
    many = collective_picture(view(ranks=16, step=30))["grid"]
    assert not many["masks"]
    assert set(many["after"]) == {16}


def test_an_all_to_all_has_a_block_for_every_pair():
    grid = collective_picture(view(op="all_to_all", algorithm="direct"))["grid"]
    assert grid["chunks"] == 16
    assert grid["names"][1] == "0→1"
    assert grid["before"][0] == 1
    assert grid["before"][16] == -1


def test_the_predicted_time_is_steps_times_latency_and_bytes_over_bandwidth():
    row = collective_picture(view())["table"]["rows"][1]
    # 6 × 1 ms + 1.5 × 1 048 576 / 1e9 s = 7.573 ms
    assert row["formula"] == "7.57\u2009ms"
    assert row["note"].startswith("6 α + 1.5 β S")


def test_lines_cross_where_ring_and_direct_take_the_same_time():
    ring, direct = (collective("all_reduce", name, 4) for name in ("ring", "direct"))
    # 6 α + 1.5 β S = 1 α + 3 β S: S = 5 α / 1.5 β = 3 333 333 bytes, up to the rounding of chunks.
    assert crossing_bytes(ring, direct, LINK) == pytest.approx(3_333_333, rel=1e-5)
    chart = collective_picture(view())["chart"]
    assert chart["crossing"]["below"] == "direct faster"


@pytest.mark.parametrize(
    ("given", "words"),
    [({"ranks": 65}, "at most 64"), ({"size": 0}, "1 byte or more"), ({"ranks": 0}, "ranks=0")],
)
def test_what_has_no_picture_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        view(**given)


def test_a_fit_finds_the_link_that_made_the_times():
    one = collective("all_reduce", "ring", 4)
    times = {size: one.seconds(size, LINK) for size in (1024, 65536, MIB, 16 * MIB)}
    fit = fit_link(one, times)
    assert fit.link.latency_s == pytest.approx(1e-3)
    assert fit.link.bandwidth_bytes_per_s == pytest.approx(1e9, rel=1e-6)
    assert fit.held_out == (65536, 16 * MIB)
    assert fit.worst_error < 1e-9


def test_a_fit_has_no_negative_latency():
    one = collective("all_reduce", "ring", 2)
    assert fit_link(one, {1024: 1e-9, MIB: 1.0}).link.latency_s >= 0


def test_a_difference_needs_a_link_fitted_to_the_same_times():
    one = collective("all_reduce", "ring", 4)
    times = {1024: 6e-3, 65536: 7e-3, MIB: 9e-3, 4 * MIB: 12e-3}
    fitted = MeasuredCollective(one=one, source="measured:gloo", times=times, fit=fit_link(one, times))
    rows = collective_picture(view(), fitted)["table"]["rows"]
    assert rows[1]["difference"] == "another link"
    assert fitted.fit is not None
    rows = collective_picture(view(size=65536, link=fitted.fit.link), fitted)["table"]["rows"]
    assert rows[1]["difference"].endswith("%")
    assert measured_data(fitted, LINK, 0)["points"][0][2] is None


def test_the_headline_of_a_run_names_the_fits_error_and_claims_no_gap():
    one = collective("all_reduce", "ring", 4)
    times = {MIB // 4: 4e-3, MIB // 2: 8e-3, MIB: 9e-3, 2 * MIB: 30e-3}
    fit = fit_link(one, times)
    run = MeasuredCollective(one=one, source="measured:gloo", times=times, fit=fit, exact=True)
    told = collective_picture(view(link=fit.link), run)["headline"][1]
    assert told.startswith("On 4 real ranks every cell came out as drawn; 1 MiB took 9.00")
    assert "give or take" in told
    assert "against the line" not in told


def test_cells_fill_when_every_rank_has_told_its_step():
    one = collective("all_reduce", "ring", 2)
    run = MeasuredCollective(one=one, source="measured:gloo")
    run = with_step(run, 0, 1, [30.0, 11.0])
    assert measured_data(run, LINK, 1)["values"] is None
    run = with_step(run, 1, 1, [20.0, None])
    assert measured_data(run, LINK, 1)["values"] == ["30", "11", "20", ""]
    assert run.steps_done == pytest.approx(2 / 6)


def test_a_run_is_read_from_what_the_ranks_returned():
    one = collective("all_reduce", "ring", 2)
    value = {
        "states": [[[10.0, 11.0], [20.0, 21.0]]] * 3,
        "bytes_sent_per_rank": 16,
        "traffic": {"payload_bytes": 16},
        "parity": {"ok": True},
        "times": [
            {"bytes": 1024, "by": "hand", "seconds": 2e-3},
            {"bytes": 1024, "by": "library", "seconds": 1e-3},
        ],
    }
    run = measured_collective(one, [value, value], "measured:gloo")
    assert run.bytes_of(MIB) == MIB
    assert run.times == {1024: 2e-3}
    assert run.sentence == "On 2 real ranks every cell came out as drawn."


def test_a_run_times_its_buffer_among_a_few_and_a_sweep_seven_sizes():
    assert run_levers(view(), sweep=False)["sizes"] == [1024, 16384, 262144, MIB, 4 * MIB]
    assert 64 * MIB not in run_levers(view(size=64 * MIB), sweep=False)["sizes"]
    assert len(run_levers(view(), sweep=True)["sizes"]) == 7


def test_copies_run():
    forms = collective_copies(view())
    scope: dict = {}
    exec(forms["python"], scope)
    assert forms["command"] == "playbook collective all_reduce --algorithm ring --ranks 4 --bytes 1048576"

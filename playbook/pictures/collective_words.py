"""What a picture of a collective says: the finding after a step, what moves in it, and the table under it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from playbook.collectives import Collective
from playbook.pictures.words import buffer_size, difference, in_words, row, short
from playbook.units import MINUS, counted, percent, seconds, significant, thousands

if TYPE_CHECKING:
    from playbook.pictures.collective import CollectiveView
    from playbook.pictures.collective_run import MeasuredCollective

RESULTS = {
    "all_reduce": "the whole sum",
    "reduce_scatter": "its chunk of the sum",
    "all_gather": "every chunk",
    "all_to_all": "a block from every rank",
}
SHARES = {
    Fraction(1, 2): "half",
    Fraction(1, 3): "a third of",
    Fraction(2, 3): "two thirds of",
    Fraction(1, 4): "a quarter of",
    Fraction(3, 4): "three quarters of",
}


def headline(view: CollectiveView, measured: MeasuredCollective | None) -> list[str]:
    """The finding after the step shown; what real ranks did, if they ran, is its second half."""
    finding = _finding(view.one, view.step)
    return [finding, _ran(view, measured) if measured else ""]


def _ran(view: CollectiveView, measured: MeasuredCollective) -> str:
    time = measured.seconds_at(view.size_bytes)
    if measured.exact is None or time is None or not measured.fits(view.link):
        return measured.sentence
    line = view.one.seconds(view.size_bytes, view.link)
    took = f"{buffer_size(view.size_bytes)} took {seconds(time)}"
    if measured.fit is None:
        return f"{measured.sentence[:-1]}; {took}, {difference(time, line)} against the line."
    # The gap itself stands in the table: here it would claim more than the fit can know.
    give = percent(measured.fit.median_error)
    return f"{measured.sentence[:-1]}; {took}, the line says {seconds(line)}, give or take {give}."


def _finding(one: Collective, step: int) -> str:
    if not one.load:
        return "One rank has nothing to send: a collective starts at two."
    if step == 0:
        before = one.operation.summary.split(";")[0]
        return f"Before the {one.operation.words} {before}; nothing is sent yet."
    if step == len(one.load):
        return _end(one, step)
    finished, share = one.finished(step), _share(one, step)
    low = min(finished)
    if low == 0:
        most = max(len(held) for chunks in one.states[step] for held in chunks if held)
        if one.op in ("all_reduce", "reduce_scatter"):
            sums = f"the partial sums hold {in_words(most)} ranks each"
            return f"After step {step} {sums}: {share} sent, nothing is finished yet."
        return f"After step {step} {share} sent, and some ranks still wait for their first chunk."
    own = "one finished chunk" if low == 1 else f"{in_words(low)} finished chunks"
    verb = "owns" if low == max(finished) else "owns at least"
    tail = (
        ", no rank holds the whole sum yet" if one.op == "all_reduce" and max(finished) < one.chunks else ""
    )
    return f"After step {step} every rank {verb} {own}: {share} sent{tail}."


def _end(one: Collective, step: int) -> str:
    if one.op == "send_recv":
        return "After one step rank 1 has the message of rank 0: one message, one latency."
    sent = Fraction(sum(one.load), one.operation.parts(one.ranks))
    ratio = "exactly its buffer" if sent == 1 else f"{short(float(sent))} times its buffer"
    after = "After one step" if step == 1 else f"After step {step}"
    return f"{after} every rank holds {RESULTS[one.op]}, having sent {ratio}."


def _share(one: Collective, step: int) -> str:
    share = Fraction(sum(one.load[:step]), sum(one.load))
    words = SHARES.get(share)
    return f"{words} the bytes" if words else f"{round(100 * share)} % of the bytes"


def step_title(view: CollectiveView) -> list[str]:
    """Which step is shown, and what happens in it."""
    one, steps = view.one, len(view.one.load)
    if view.step == 0:
        return [f"Before step 1 of {steps}", "what each rank holds"]
    chunks, verb = one.load[view.step - 1], "adds" if one.steps[view.step - 1][0].reduce else "keeps"
    what = (
        f"one {buffer_size(one.chunk_bytes(view.size_bytes))} chunk"
        if chunks == 1
        else f"{in_words(chunks)} chunks of {buffer_size(one.chunk_bytes(view.size_bytes))}"
    )
    who = "rank 0 sends" if one.op == "send_recv" else "each rank sends"
    return [
        f"Step {view.step} of {steps}",
        f"{who} {what}; the receiver {verb} {'it' if chunks == 1 else 'them'}",
    ]


def progress(view: CollectiveView) -> str:
    """Bytes that the busiest rank has sent so far, of all, in one unit."""
    one = view.one
    chunk, total = one.chunk_bytes(view.size_bytes), one.bytes_sent_per_rank(view.size_bytes)
    so_far = sum(one.load[: view.step]) * chunk
    if so_far in (0, total):
        return f"{buffer_size(so_far)} of {buffer_size(total)} sent per rank"
    unit, size = next(
        (u, s) for u, s in (("MiB", 2**20), ("KiB", 2**10), ("B", 1)) if total >= s and so_far % s == 0
    )
    return f"{thousands(so_far // size)} of {short(total / size, 4)} {unit} sent per rank"


def crossing_words(at_bytes: int, below: str, above: str) -> dict[str, Any]:
    """Where two formula lines cross, and who is faster on each side."""
    words = f"predicted crossing, {buffer_size(at_bytes, digits=3)}"
    return {"bytes": at_bytes, "words": words, "below": f"{below} faster", "above": f"{above} faster"}


def table_rows(view: CollectiveView, measured: MeasuredCollective | None) -> dict[str, Any]:
    """Bytes, time and bus bandwidth: formula, measured, difference."""
    one, size = view.one, view.size_bytes
    sent, time = one.bytes_sent_per_rank(size), one.seconds(size, view.link)
    moved = measured.bytes_of(size) if measured else None
    ran = measured.seconds_at(size) if measured else None
    comparable = measured is not None and measured.fits(view.link)
    rows = [
        row(
            "bytes sent per rank",
            formula=buffer_size(sent),
            traced="not traced",
            measured=buffer_size(moved) if moved is not None else "not run",
            difference=difference(moved, sent),
        ),
        row(
            "time",
            _formula_words(view),
            formula=seconds(time),
            traced="no clock",
            measured=seconds(ran) if ran is not None else "not run",
            difference=difference(ran, time) if comparable else "another link" if ran is not None else "",
        ),
        row(
            "bus bandwidth",
            f"{short(one.bus_factor)} × S / time",
            formula=_bandwidth(one.bus_factor * size, time),
            traced="no clock",
            measured=_bandwidth(one.bus_factor * size, ran) if ran is not None else "not run",
            difference=difference(time, ran) if comparable and ran else "",
        ),
    ]
    if measured:
        rows += measured.rows
    return {
        "head": f"{buffer_size(size)}, {one.algorithm}, {counted(one.ranks, 'rank')}",
        "rows": rows,
        "sources": {"formula": "formula", "measured": measured.source if measured else ""},
    }


def _formula_words(view: CollectiveView) -> str:
    one = view.one
    parts = Fraction(sum(one.load), one.operation.parts(one.ranks)) if one.load else Fraction(0)
    per_byte = 1e9 / view.link.bandwidth_bytes_per_s
    formula = f"{len(one.load)} α + {short(float(parts))} β S"
    return f"{formula},  α {seconds(view.link.latency_s)}, β {significant(per_byte)} ns/B"


def _bandwidth(size: float, time_s: float | None) -> str:
    return f"{significant(size / time_s / 1e9)} GB/s" if time_s else MINUS

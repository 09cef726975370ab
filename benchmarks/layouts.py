"""Peaks of many layouts at once by the derived form, against walking the program of each."""

from __future__ import annotations

import numpy as np

import playbook as pb
from benchmarks.figure import Figure, sample
from playbook.predict.layouts import closed_form, values_of


def scenario(dp: int) -> pb.Scenario:
    workload = pb.Workload(sequence=4096, global_batch=dp, recipe="fsdp2-mixed", recompute="full")
    return pb.Scenario(
        pb.model("llama-3.1-70b"), workload, pb.Layout(dp=dp, zero=3), framework="transformers"
    )


def measure(tiny: bool = False) -> list[Figure]:
    """Measure layouts of one structural variant, whose form has been derived before."""
    count = 20 if tiny else 20_000
    base = scenario(64)
    values = values_of(base)
    values["N"] = np.resize(2 ** np.arange(3, 13), count)
    values["s"] = np.repeat(1024 * np.arange(1, 21), count // 20)
    form = closed_form(base)
    seconds = sample(lambda: form.peaks(values), times=2 if tiny else 7)
    walked = sample(lambda: pb.program(base).memory().peak_bytes, times=2 if tiny else 5)
    return [
        Figure(
            what=f"{count:,} layouts of one structural variant by the derived form",
            seconds=seconds,
            budget_s=0.1,
            peer=f"walking {count:,} programs, from one",
            peer_seconds=tuple(count * one for one in walked),
        )
    ]

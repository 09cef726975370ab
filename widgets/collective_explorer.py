"""CollectiveExplorer: who sends which chunk to whom, step by step, and what it costs.

Then the same on real ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import traitlets as T

from playbook.collectives import OPERATIONS, algorithms
from playbook.pictures.collective import SIZES, collective_copies, collective_picture, collective_view
from playbook.pictures.collective_run import (
    MeasuredCollective,
    measured_collective,
    measured_data,
    run_levers,
    with_step,
)
from playbook.spec import Link, cluster
from playbook.units import counted
from widgets.controls import segments, select, slider
from widgets.pool import Task
from widgets.running import RunningExplorer
from widgets.stills import collective_png

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from playbook.pictures.collective import CollectiveView
    from playbook.runtime.errors import RankFailed
    from playbook.runtime.run import Run

RANKS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
LINKS = (("nvlink", "H100 NVLink, 450 GB/s"), ("network", "network, 400 Gb/s"))
NOTE = (
    "Run shows real tensors step by step and times a few sizes; Sweep times more, more often. "
    "gloo on this CPU: order and bytes, not a GPU's speed."
)
FIT = ("fit", "fit of this machine")


class CollectiveExplorer(RunningExplorer):
    """A collective by one algorithm: chunks on ranks, and time against the size of the buffer."""

    CONTROLS = ("op", "algorithm", "ranks", "size_bytes", "cost_from")
    VIEW = "collective"

    op = T.Unicode("all_reduce", help="What the ranks want to achieve.").tag(
        sync=True, control=select("Operation", [(name, one.words) for name, one in OPERATIONS.items()])
    )
    algorithm = T.Unicode("ring", help="How they do it.").tag(
        sync=True, control=segments("Algorithm", [(name, name) for name in algorithms()])
    )
    ranks = T.Int(4, help="Processes in the group.").tag(sync=True, control=slider("Ranks", RANKS))
    size_bytes = T.Int(2**20, help="The full buffer S of nccl-tests, in bytes.").tag(
        sync=True, control=slider("Buffer per rank", SIZES, "bytes")
    )
    cost_from = T.Unicode("nvlink", help="Latency and bandwidth that the time is computed from.").tag(
        sync=True, control=select("Cost from", LINKS)
    )
    step = T.Int(
        None, allow_none=True, help="Step shown; 0 is before the first, None the one to show first."
    ).tag(sync=True)

    def __init__(self, op: str = "all_reduce", **given: Any) -> None:
        self._view: CollectiveView | None = None
        self._ran: MeasuredCollective | None = None
        self._timed = self._sizes = 0
        super().__init__(op=op, **given)
        self.observe(self.put, names=["step"])

    def draw(self) -> dict[str, Any]:
        """Picture of the step shown, with what real ranks held and took if they ran this collective."""
        link, words = self.link()
        view = collective_view(self.op, self.algorithm, self.ranks, self.size_bytes, self.step, link, words)
        self._view = view
        ran = self._ran if self._ran and self._ran.one == view.one else None
        other = self._ran.words if self._ran and not ran else ""
        return {
            "picture": collective_picture(view, ran),
            "measured": measured_data(ran, view.link, view.step) if ran else {},
            "actions": [
                {
                    "name": "run",
                    "label": f"Run on {counted(self.ranks, 'rank')}",
                    "help": "The ranks' real tensors, step by step",
                },
                {
                    "name": "sweep",
                    "label": "Sweep",
                    "help": "Time seven buffers of 1 KiB to 4 MiB, twenty times each",
                },
            ],
            "note": ran.note if ran else NOTE + other,
        }

    def link(self) -> tuple[Link, str]:
        """Link that costs are computed from, and its name."""
        if self.cost_from == "fit":
            if self._ran is None or self._ran.fit is None:
                raise ValueError(
                    "cost_from='fit': nothing was timed yet; press Run, or use 'nvlink' or 'network'"
                )
            return self._ran.fit.link, "fit of this machine"
        node = cluster("1x8-h100")
        links = {"nvlink": (node.intra, "H100 NVLink"), "network": (node.inter, "400 Gb/s network")}
        if self.cost_from not in links:
            raise ValueError(f"cost_from={self.cost_from!r}; use one of {', '.join((*links, 'fit'))}")
        return links[self.cost_from]

    def options(self) -> dict[str, Any]:
        """Algorithms that can do the operation; the fit once there is one."""
        able = [name for name, algorithm in algorithms().items() if self.op in algorithm.phases]
        fitted = self._ran is not None and self._ran.fit is not None
        return {
            "algorithm": [[name, name] for name in able],
            "cost_from": [list(one) for one in (*LINKS, *([FIT] if fitted else []))],
        }

    def task(self, name: str) -> Task:
        """The collective step by step on small tensors, and this buffer, or a sweep of buffers.

        On the clock.
        """
        assert self._view is not None
        one, self._timed = self._view.one, 0
        levers = run_levers(self._view, sweep=name == "sweep")
        self._sizes = len(levers["sizes"])
        self._ran = MeasuredCollective(one=one, source="measured:gloo")
        what = f"{one.operation.words} by {one.algorithm}, chunk by chunk."
        return Task(ranks=one.ranks, work=one.op, levers=levers, phases=("steps", "times"), what=what)

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Put what ranks hold after a step into the cells."""
        assert self._ran is not None
        for event in events:
            if event["kind"] == "step":
                self._ran = with_step(self._ran, event["rank"], event["step"], event["values"])
            elif event["kind"] == "phase" and event["name"].startswith("timing") and event["rank"] == 0:
                self._timed += 1

    def finish(self, run: Run) -> None:
        """Take the times; the formula's lines are then drawn from the fit to them."""
        assert self._ran is not None
        self._ran = measured_collective(self._ran.one, run.values, self._ran.source)
        if self._ran.fit is not None:
            self.cost_from = "fit"

    def progress(self) -> Sequence[float]:
        """Part of the steps that all ranks took, and of the sizes timed."""
        assert self._ran is not None
        return [self._ran.steps_done, max(0, self._timed - 1) / max(1, self._sizes)]

    def remedies(self, failed: RankFailed) -> list[dict[str, Any]]:
        """Fewer ranks, if a rank was killed."""
        if "kill" not in failed.cause.lower() or self.ranks <= 2:
            return []
        return [{"words": "Run on 2 ranks", "set": {"ranks": 2}}]

    def copies(self) -> dict[str, str]:
        """The collective as Python, as command and as JSON."""
        assert self._view is not None
        return collective_copies(self._view)

    def on_sweep(self, _: Any = None) -> None:
        """Answer the Sweep button."""
        self.run(button="sweep")

    @property
    def figure(self) -> Figure:
        """The picture as a plotly figure."""
        from widgets.figures import collective_figure

        return collective_figure(self.picture, self.measured)

    def png(self) -> bytes:
        """The picture for viewers without a kernel."""
        return collective_png(self.picture, self.measured)

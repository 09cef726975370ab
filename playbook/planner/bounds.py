"""No order of a setting on a placement ends before this.

Claim: the makespan of every order is at least max over ranks of Jackson's preemptive schedule of that rank's
tasks with the heads and tails below, at least head + cost + tail of every task, and at least what the cap
leaves: first head on a rank + sum of its chunks' shortest lives / K.

Proof. (1) Micro-batches are equal, so an order can be renumbered until every stage takes them in turn in
each direction, with the same times and memory (see `placed`). So F(s, k) follows F(s, k − 1), and likewise
for I and W; with F(s, k) after F(s − 1, k), I(s, k) after I(s + 1, k) (each by the border's delay) and
after F(s, k), W(s, k) after I(s, k). (2) A rank that may hold K chunks starts F(s, k + K) no earlier than
the end of W(s, k): before it, k + K of the stage's chunks have come and at most K − 1 may be left. These
edges alone give the chain bound (longest path) and the memory-capped throughput (K micro-batches a round
trip). (3) A rank runs one task at a time, so what must come before a task on its rank takes, from the
earliest of them on, at least the sum of their costs: head = max over j of (head of j + costs of those whose
head is not below j's). The tail, what must still come after a task, is the same on the reversed edges. (4)
Given heads and tails, no schedule of one machine ends before the preemptive one that always runs the ready
task with the largest tail (Jackson 1955; Carlier, The one-machine sequencing problem, 1982). A fused
backward is covered by giving I the lesser of I and B, and W what is left of the lesser of B and I + W. (5)
A chunk of stage s is alive from the start of F(s, k) to the end of W(s, k), at least a round trip to the
last stage and back; at any time at most K are alive, so all lives together last at most K times the time
from the first F to the last W.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from playbook.planner.placed import Placed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Edges = list[list[tuple[int, float]]]
"""Node → what it must wait for, and the delay between."""


def lower_bound(placed: Placed) -> float:
    """Makespan that no order on this placement beats, under the setting's cap."""
    duration, edges = _graph(placed)
    order = _topological(edges)
    rank = np.repeat(np.array(placed.placement), 3 * placed.trips)
    head = _heads(duration, edges, order, rank, placed.trips)
    tail = _heads(duration, _reversed(edges), order[::-1], rank, placed.trips)
    longest = float((head + duration + tail).max())
    machines = (np.flatnonzero(rank == r) for r in range(placed.setting.ranks))
    busy = [_jackson(head[own], duration[own], tail[own]) for own in machines]
    return max(longest, *busy, *_held(placed, duration, head))


def _held(placed: Placed, duration: Floats, head: Floats) -> list[float]:
    """Earliest end of each rank whose chunks in flight are capped, by the sum of their lives."""
    setting, n = placed.setting, placed.trips
    if setting.cap is None:
        return []
    cost = duration.reshape(-1, 3, n)[:, :, 0]
    ends = []
    for rank, cap in enumerate(setting.cap):
        slots = [slot for slot in placed.slots_of(rank) if placed.counts[slot]]
        lives = sum(placed.counts[slot] * _life(placed, slot, cost) for slot in slots)
        ends.append(min(float(head[slot * 3 * n]) for slot in slots) + lives / cap)
    return ends


def _life(placed: Placed, slot: int, cost: Floats) -> float:
    """Shortest time from the start of a slot's F to the end of its W: to the last stage and back."""
    last = slot - slot % placed.setting.depth + placed.setting.depth - 1
    hops = sum(_delay(placed, here, here + 1) for here in range(slot, last))
    return float(cost[slot : last + 1, :2].sum() + cost[slot, 2]) + 2 * hops


def _delay(placed: Placed, slot: int, other: int) -> float:
    """Time that a message takes between neighbouring slots."""
    far = placed.placement[slot] != placed.placement[other]
    return placed.setting.comm[min(slot, other) % placed.setting.depth] if far else 0.0


def _graph(placed: Placed) -> tuple[Floats, Edges]:
    """Nodes (slot · 3 + part) · n + k, part F, I or W: their costs, and what each waits for.

    A chain with fewer than n micro-batches has nodes without cost or message at its end.
    """
    setting, n = placed.setting, placed.trips
    slots, depth = len(placed.placement), setting.depth
    parts = _parts(setting.forward, setting.backward, setting.backward_input, setting.backward_weight)
    if not setting.split:
        parts = (setting.forward, setting.backward, (0.0,) * depth)
    duration = np.array([parts[p][s % depth] for s in range(slots) for p in range(3) for _ in range(n)])
    edges: Edges = [[] for _ in range(duration.size)]

    def node(slot: int, part: int, k: int) -> int:
        return (slot * 3 + part) * n + k

    for slot in range(slots):
        room = None if setting.cap is None else setting.cap[placed.placement[slot]]
        for k in range(n):
            for part in range(3):
                waits = edges[node(slot, part, k)]
                waits += [(node(slot, part, k - 1), 0.0)] if k else []
                waits += [(node(slot, part - 1, k), 0.0)] if part else []
            if k >= placed.counts[slot]:
                duration[[node(slot, part, k) for part in range(3)]] = 0.0
                continue
            if slot % depth:
                edges[node(slot, 0, k)].append((node(slot - 1, 0, k), _delay(placed, slot, slot - 1)))
            if slot % depth < depth - 1:
                edges[node(slot, 1, k)].append((node(slot + 1, 1, k), _delay(placed, slot, slot + 1)))
            if room is not None and k >= room:
                edges[node(slot, 0, k)].append((node(slot, 2, k - room), 0.0))
    return duration, edges


def _parts(
    forward: tuple[float, ...], fused: tuple[float, ...], i: tuple[float, ...], w: tuple[float, ...]
) -> tuple[tuple[float, ...], ...]:
    """Least costs of F, of what gives the gradient of the input, and of the rest."""
    through = tuple(map(min, i, fused))
    rest = (min(b, one + two) - t for b, one, two, t in zip(fused, i, w, through, strict=True))
    return forward, through, tuple(max(0.0, cost) for cost in rest)


def _reversed(edges: Edges) -> Edges:
    back: Edges = [[] for _ in edges]
    for node, waits in enumerate(edges):
        for other, delay in waits:
            back[other].append((node, delay))
    return back


def _topological(edges: Edges) -> list[int]:
    """Nodes so that each follows what it waits for; there is no cycle by construction."""
    back = _reversed(edges)
    open_waits = [len(waits) for waits in edges]
    ready = [node for node, count in enumerate(open_waits) if count == 0]
    for node in ready:
        for other, _ in back[node]:
            open_waits[other] -= 1
            if open_waits[other] == 0:
                ready.append(other)
    return ready


def _heads(duration: Floats, edges: Edges, order: list[int], rank: Ints, trips: int) -> Floats:
    """Earliest start of each node: by its waits, and by what must run before it on its own rank.

    Ancestors of one letter are a prefix (or, reversed, a suffix) of its n nodes, so a count tells which.
    """
    letters = len(edges) // trips
    letter = np.arange(len(edges)) // trips
    counts = np.zeros((len(edges), letters), dtype=np.int64)
    head = np.zeros(len(edges))
    place = np.full(len(edges), trips)
    seen = np.zeros(letters, dtype=np.int64)
    own = {int(r): np.flatnonzero(rank == r) for r in np.unique(rank)}
    for node in order:
        place[node] = seen[letter[node]]
        seen[letter[node]] += 1
        for other, delay in edges[node]:
            counts[node] = np.maximum(counts[node], counts[other])
            head[node] = max(head[node], head[other] + duration[other] + delay)
        here = own[int(rank[node])]
        here = here[place[here] < counts[node, letter[here]]]
        if here.size:
            by = here[np.argsort(-head[here], kind="stable")]
            head[node] = max(head[node], float((head[by] + np.cumsum(duration[by])).max()))
        counts[node, letter[node]] = place[node] + 1
    return head


def _jackson(head: Floats, duration: Floats, tail: Floats) -> float:
    """End, tails included, of the preemptive schedule that always runs the ready task of the largest tail."""
    by = np.argsort(head, kind="stable").tolist()
    ready: list[list[float]] = []
    now, bound, place = 0.0, 0.0, 0
    while place < len(by) or ready:
        if not ready:
            now = max(now, float(head[by[place]]))
        while place < len(by) and head[by[place]] <= now:
            heappush(ready, [-float(tail[by[place]]), float(duration[by[place]])])
            place += 1
        until = float(head[by[place]]) if place < len(by) else np.inf
        spent = min(ready[0][1], until - now)
        now += spent
        ready[0][1] -= spent
        if ready[0][1] <= 0.0 or now < until:
            bound = max(bound, now - ready[0][0])
            heappop(ready)
    return bound

"""Random orders that can run, and a plain simulator to hold the engine to."""

from hypothesis import strategies as st

from playbook.schedules import Action


def needs(action, stages):
    """What an action needs, as (direction, stage, micro-batch)."""
    stage, kind, microbatch, _ = action
    found = {("F", stage - 1, microbatch)} if kind == "F" and stage else set()
    if kind in "BI":
        found |= {("F", stage, microbatch)}
        found |= {("B", stage + 1, microbatch)} if stage < stages - 1 else set()
    return found | ({("B", stage, microbatch)} if kind == "W" else set())


def gives(action):
    """What others need of it."""
    return ("B" if action.kind == "I" else action.kind, action.stage, action.microbatch)


@st.composite
def random_orders(draw):
    """(orders, placement): ranks take ready actions at random; some backwards are split, some overlapped."""
    ranks, chunks, microbatches = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    placement = list(range(ranks)) * chunks
    stages = len(placement)
    split = draw(st.lists(st.booleans(), min_size=stages, max_size=stages))
    random = draw(st.randoms(use_true_random=False))
    kinds = {stage: "FIW" if split[stage] else "FB" for stage in range(stages)}
    todo = [Action(s, kind, m) for s in range(stages) for kind in kinds[s] for m in range(microbatches)]
    done, orders = set(), [[] for _ in range(ranks)]
    while todo:
        ready = [action for action in todo if needs(action, stages) <= done]
        block = [random.choice(ready)]
        beside = [a for a in ready if a.kind == "B" and placement[a.stage] == placement[block[0].stage]]
        if block[0].kind == "F" and beside and random.random() < 0.5:
            block.append(random.choice(beside))
        orders[placement[block[0].stage]] += [a._replace(beside=at > 0) for at, a in enumerate(block)]
        done |= {gives(action) for action in block}
        todo = [action for action in todo if action not in block]
    return orders, placement


def plain_starts(orders, placement, length, way, blocking=False, deferred=False):
    """Start of every action by its rules, again and again until nothing moves; None if it never stands still.

    `length` gives the time of a block, a list of actions; `way` that of a message between ranks,
    above 0 where ranks meet: a cycle of no length stands still, and is a deadlock all the same.
    """
    rows = [(r, a) for r, order in enumerate(orders) for a in order]
    blocks = []
    for rank, action in rows:
        if action.beside:
            blocks[-1][1].append(action)
        else:
            blocks.append((rank, [action]))
    maker = {gives(action): at for at, (_, block) in enumerate(blocks) for action in block}
    inputs = [{maker[n] for a in block for n in needs(a, len(placement))} for _, block in blocks]
    ranks = [rank for rank, _ in blocks]
    before = [at - 1 if at and ranks[at - 1] == ranks[at] else None for at in range(len(blocks))]
    far = [(a, b) for b, every in enumerate(inputs) for a in every if ranks[a] != ranks[b]]
    start, free = [0] * len(blocks), [0] * len(blocks)
    for _ in range(4 * len(blocks) + 4):
        last = start, free
        end = [s + length(block) for s, (_, block) in zip(start, blocks, strict=True)]
        arrive = {(a, b): max(end[a], free[b] if deferred else 0) + way for a, b in far}
        kept = [
            max([end[a], *(t for (who, _), t in arrive.items() if blocking and who == a)])
            for a in range(len(end))
        ]
        free = [0 if one is None else kept[one] for one in before]
        start = [
            max([free[b], *(arrive.get((a, b), end[a]) for a in every)]) for b, every in enumerate(inputs)
        ]
        if (start, free) == last:
            return [s for s, (_, block) in zip(start, blocks, strict=True) for _ in block]
    return None

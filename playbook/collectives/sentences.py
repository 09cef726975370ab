"""A step of a collective in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from playbook.collectives.steps import Step, Transfer

ChunkName = Callable[[int], str]


def describe_step(step: Step, chunk_name: ChunkName) -> tuple[str, ...]:
    """Say for each rank that sends or receives what it does."""
    ranks = sorted({rank for transfer in step for rank in (transfer.src, transfer.dst)})
    return tuple(_describe_rank(rank, step, chunk_name) for rank in ranks)


def _describe_rank(rank: int, step: Step, chunk_name: ChunkName) -> str:
    sent = [transfer for transfer in step if transfer.src == rank]
    got = [transfer for transfer in step if transfer.dst == rank]
    parts = []
    if sent:
        parts.append(f"sends {_what(sent, 'to', lambda t: t.dst, chunk_name)}")
    if got:
        verb = "adds" if got[0].reduce else "receives"
        parts.append(f"{verb} {_what(got, 'from', lambda t: t.src, chunk_name)}")
    return f"rank {rank} {' and '.join(parts)}"


def _what(
    transfers: list[Transfer], word: str, peer_of: Callable[[Transfer], int], chunk_name: ChunkName
) -> str:
    """Chunks with their peers; one phrase for peers that get the same chunks, or give them."""
    by_peer: dict[int, list[int]] = {}
    for transfer in transfers:
        by_peer.setdefault(peer_of(transfer), []).append(transfer.chunk)
    peers_of: dict[tuple[int, ...], list[int]] = {}
    for peer in sorted(by_peer):
        peers_of.setdefault(tuple(by_peer[peer]), []).append(peer)
    return ", ".join(
        f"{_list_names(map(chunk_name, chunks))} {word} {_list_names(f'rank {peer}' for peer in peers)}"
        for chunks, peers in peers_of.items()
    )


def _list_names(names: Iterable[str]) -> str:
    """Join "chunk 1", "chunk 2", "chunk 3" to "chunks 1, 2 and 3"."""
    words, numbers = zip(*(name.split(" ", 1) for name in names), strict=True)
    if len(numbers) == 1:
        return f"{words[0]} {numbers[0]}"
    return f"{words[0]}s {', '.join(numbers[:-1])} and {numbers[-1]}"


def describe_progress(
    step: int, steps: int, finished: Sequence[int], wanted: Sequence[int], share: float
) -> str:
    """Say how much of the result stands, and how many of the bytes are sent."""
    if list(finished) == list(wanted):
        return f"After step {step} of {steps} every rank holds its whole result."
    low, high = min(finished), max(finished)
    count = f"{low}" if low == high else f"{low} to {high}"
    return (
        f"After step {step} of {steps} a rank holds {count} of {max(wanted)} finished chunks; "
        f"{share:.0%} of the bytes are sent."
    )

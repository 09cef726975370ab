"""What an engine's pool of pages is, and what it holds."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playbook.predict.kv_cache import KvCache

MOST_PAGES = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPool:
    """The pools of all replicas, equal on every rank.

    Parameters
    ----------
    cache
        The cache whose pages they hold.
    bytes
        Size on one rank.
    """

    cache: "KvCache"
    bytes: float

    @property
    def blocks(self) -> int:
        """Pages, in every layer, on a rank."""
        return max(0, int(self.bytes // self.cache.block_bytes))

    @property
    def sequences(self) -> int:
        """Sequences of the cache's length that all replicas hold."""
        return self.cache.dp * max(0, int(self.bytes // self.cache.sequence_bytes(self.cache.tokens)))

    @property
    def tokens(self) -> int:
        """Tokens that all replicas hold.

        Notes
        -----
        Pages times their tokens; where layers stop growing, pool / pages of one sequence × its length, as
        vLLM's log counts: that number changes with the length.
        """
        cache = self.cache
        if cache.one_rate or not cache.hybrid:
            return cache.dp * cache.cp * cache.block * self.blocks
        return max(0, int(cache.dp * self.bytes / cache.sequence_bytes(cache.tokens) * cache.tokens))

    @property
    def bytes_per_token(self) -> float:
        """Pool of one rank over the tokens of its replica."""
        return self.bytes * self.cache.dp / self.tokens

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence whose pages fit, page by page; 0 if none.

        Raises
        ------
        ValueError
            If every length fits, because no layer grows with the sequence.
        """
        low, high = 0, 1
        while self._fits(high):
            low, high = high, 2 * high
            if high > MOST_PAGES:
                raise ValueError("every length fits: each layer has a window, so the cache stops growing")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(middle) else (low, middle)
        return low * self.cache.block * self.cache.cp

    def _fits(self, pages: int) -> bool:
        """Whether a sequence of that many full pages a rank fits."""
        return self.cache.sequence_bytes(pages * self.cache.block * self.cache.cp) <= self.bytes


def pool_bytes(
    total_bytes: float,
    utilisation: float,
    weights_bytes: float,
    activation_bytes: float,
    other_bytes: float = 0,
    graph_bytes: float = 0,
) -> float:
    """Return what is left for the cache, by vLLM's rule.

    Parameters
    ----------
    total_bytes, utilisation
        Memory of the device, and the part that the engine may take.
    weights_bytes, activation_bytes
        Resident weights, and the peak of a profiled step over them.
    other_bytes, graph_bytes
        What lies outside torch (driver, communicators), and captured graphs.

    Notes
    -----
    utilisation · total − weights − activation peak − other − graphs. Each is one GPU's, none the job's.
    Below 0 nothing is left. Source: vLLM, v1/worker/gpu_worker.py, determine_available_memory.

    Examples
    --------
    >>> round(pool_bytes(178.36, 0.9, 8.58, 9.96, 0.07, 0.65), 2)
    141.26
    """
    return total_bytes * utilisation - weights_bytes - activation_bytes - other_bytes - graph_bytes

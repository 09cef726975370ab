"""What to mind about a cache, in words."""

from typing import TYPE_CHECKING

from playbook.predict.left_out import noted
from playbook.units import counted, size, thousands

if TYPE_CHECKING:
    from playbook.predict.kv_cache import KvCache


def kv_note(cache: "KvCache") -> str:
    """Say why a cache is larger than its bytes per token suggest, and what it leaves out; else empty."""
    larger = (replication(cache), growth(cache), uniform(cache), padded(cache), shared(cache))
    return noted(*larger, cache.left_out)


def replication(cache: "KvCache") -> str:
    """Say how often tensor parallelism copies the cache."""
    several = [kind for kind in cache.layers if kind.copies(cache.tp) > 1]
    if not several:
        return ""
    kind, same = several[0], len({kind.copies(cache.tp) for kind in cache.layers}) == 1
    what = "the cache" if same else f"the cache of {kind.kind} layers"
    if kind.latent:
        return (
            f"{what} is replicated {kind.copies(cache.tp)} times: one latent head cannot be split by heads; "
            f"dp={cache.tp} with tp=1 for attention would keep one copy"
        )
    heads = counted(kind.heads, "key-value head")
    return f"{what} is replicated {kind.copies(cache.tp)} times: {heads} on tp={cache.tp} ranks"


def growth(cache: "KvCache") -> str:
    """Say that layers with a window leave no rate per token."""
    if cache.one_rate:
        return ""
    windows = sorted({kind.window for kind in cache.layers if kind.window})
    longest = thousands(windows[-1])
    if not cache.slope_bytes:
        return (
            f"a sequence of more than {longest} tokens takes {size(cache.constant_bytes)} however long it is"
        )
    return (
        f"no one rate per token: a sequence of n > {longest} tokens takes {size(cache.constant_bytes)} + "
        f"{size(cache.slope_bytes)} · n"
    )


def uniform(cache: "KvCache") -> str:
    """Say what an engine without pages that go takes more."""
    if cache.one_rate or cache.hybrid or cache.engine_bytes <= cache.bytes_per_rank:
        return ""
    times = cache.engine_bytes / cache.bytes_per_rank
    return f"without a hybrid allocator every layer keeps every token: {times:.1f} times the ideal"


def padded(cache: "KvCache") -> str:
    """Say what groups of equally many layers take besides."""
    if not cache.padding_bytes:
        return ""
    return f"vLLM fills its groups of layers up, which takes {size(cache.padding_bytes)} more"


def shared(cache: "KvCache") -> str:
    """Say that layers read other layers' caches."""
    count = sum(kind.count for kind in cache.layers if kind.shared)
    if count == 1:
        return "1 layer reads an earlier layer's cache and takes nothing"
    return f"{count} layers read an earlier layer's cache and take nothing" if count else ""

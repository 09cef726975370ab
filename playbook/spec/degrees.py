"""Degrees of context and expert parallelism that a model and a sequence can be shared out by."""

import math

from playbook.spec.layout import Layout
from playbook.spec.model import Model
from playbook.spec.rules import divisors


def check_pieces(sequence: int, layout: Layout) -> None:
    """Refuse a sequence that cp ranks cannot cut into equal pieces: one each, or two if zigzag."""
    cp = layout.cp
    if cp == 1:
        return
    zigzag = layout.cp_split == "zigzag" and layout.cp_method != "ulysses"
    each = 2 if zigzag else 1
    if sequence % (each * cp):
        works = [str(d) for d in divisors(sequence) if d <= 4 * cp and sequence % (each * d) == 0]
        rule = f"2 x cp (cp_split=zigzag) = {2 * cp}" if zigzag else f"cp={cp}"
        padded = -(-sequence // (each * cp)) * each * cp
        other = ", cp_split=contiguous" if zigzag and sequence % cp == 0 else ""
        raise ValueError(
            f"cp={cp}: {rule} does not divide sequence={sequence}; cp in {', '.join(works) or 'none'} would "
            f"work{other}, or a sequence padded to {padded}"
        )


def check_context(model: Model, layout: Layout) -> None:
    """Refuse Ulysses where the ranks of cp and tp together do not share whole heads."""
    cp, tp = layout.cp, layout.tp
    if cp == 1 or layout.cp_method != "ulysses":
        return
    heads = math.gcd(model.heads, model.heads if model.mla else model.kv_heads)
    if heads % (cp * tp):
        works = [degree for degree in divisors(heads) if heads % (degree * tp) == 0]
        name = "heads" if model.mla else "kv_heads"
        raise ValueError(
            f"cp={cp} x tp={tp} = {cp * tp} does not divide {name}={heads} of {model.name}, whose heads "
            f"cp_method=ulysses shares out; cp in {', '.join(map(str, works)) or 'none'} would work, or "
            "cp_method ring or all-gather"
        )


def check_has_experts(model: Model, ep: object, etp: object) -> None:
    """Refuse expert degrees of a model without routed experts; before the layout's own rules blame sizes."""
    if model.moe is not None:
        return
    for name, degree in (("ep", ep), ("etp", etp)):
        if isinstance(degree, int) and degree > 1:
            raise ValueError(f"{name}={degree} but {model.name} has no routed experts; use {name}=1")


def ranks_for_experts(layout: Layout) -> int:
    """What dp must be a multiple of so that experts can be dealt out over ranks of dp, cp and tp.

    Examples
    --------
    >>> ranks_for_experts(Layout(dp=8, tp=2, ep=8))
    4
    """
    parts = layout.ep * layout.etp
    return parts // math.gcd(parts, layout.cp * layout.tp)


def check_experts(model: Model, layout: Layout) -> None:
    """Refuse degrees that do not divide the experts and their width, or a model without any."""
    moe = model.moe
    check_has_experts(model, layout.ep, layout.etp)
    if moe is None:
        return
    for name, what, size in (("ep", "experts", moe.experts), ("etp", "features of an expert", moe.ffn)):
        degree = getattr(layout, name)
        if size % degree:
            works = ", ".join(map(str, divisors(size)))
            raise ValueError(
                f"{name}={degree} does not divide {what}={size} of {model.name}; {name} in {works} would work"
            )

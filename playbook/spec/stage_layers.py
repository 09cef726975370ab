"""Layers of each pipeline stage: as people write them, and dealt out where they do not divide."""


def read_stage_layers(text: str | None) -> tuple[int, ...] | None:
    """Read layers of each stage, with commas or spaces between them; None for no text.

    Examples
    --------
    >>> read_stage_layers("22,20,20,18"), read_stage_layers("2 1"), read_stage_layers(" ")
    ((22, 20, 20, 18), (2, 1), None)

    Raises
    ------
    ValueError
        If it is something else.
    """
    if text is None or not text.strip():
        return None
    try:
        return tuple(int(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise ValueError(
            f"stage_layers={text!r} must be whole numbers with commas, such as 2,2,1,1"
        ) from None


def uneven(layers: int, stages: int) -> tuple[int, ...] | None:
    """Layers of each stage where they do not divide, the larger ones first; None where they do.

    Examples
    --------
    >>> uneven(61, 4), uneven(80, 4)
    ((16, 15, 15, 15), None)
    """
    if stages < 1 or layers < stages or layers % stages == 0:
        return None
    each, more = divmod(layers, stages)
    return (each + 1,) * more + (each,) * (stages - more)

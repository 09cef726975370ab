"""Orders as flat arrays: one whole number an action, so that a hundred thousand of them cost no objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from playbook.schedules.action import KINDS, Action

Packed = NDArray[np.int64]
"""Actions of a rank in order, each as stage · 2³² + beside · 2³¹ + microbatch · 4 + kind."""

F, B, I, W = range(len(KINDS))  # noqa: E741  # the papers' letters
"""Codes of the kinds, places in `KINDS`."""

_CODES = {kind: code for code, kind in enumerate(KINDS)}
_STAGE_BITS = 32
_MICROBATCHES = 1 << 29
_BESIDE = 1 << 31


def pack(stage: ArrayLike, kind: ArrayLike, microbatch: ArrayLike) -> Packed:
    """Pack actions; stage, kind and micro-batch may be arrays.

    Examples
    --------
    >>> [str(action) for action in actions_of(pack(2, F, np.arange(3)))]
    ['2F0', '2F1', '2F2']
    """
    stages, microbatches = np.asarray(stage, dtype=np.int64), np.asarray(microbatch, dtype=np.int64)
    return (stages << _STAGE_BITS) | (microbatches << 2) | np.asarray(kind, dtype=np.int64)


def unpack(packed: Packed) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return stage, kind code and micro-batch of each action."""
    return packed >> _STAGE_BITS, packed & 3, (packed >> 2) & (_MICROBATCHES - 1)


def beside(packed: Packed) -> Packed:
    """Mark actions as running at the same time as the one before them."""
    return packed | _BESIDE


def is_beside(packed: Packed) -> NDArray[np.bool_]:
    """Tell of each action whether it runs at the same time as the one before it."""
    return (packed & _BESIDE) != 0


def pack_order(order: Sequence[Action] | Packed) -> Packed:
    """Pack a rank's actions, or leave them as they are if they are packed.

    Raises
    ------
    ValueError
        If a kind is not known, or a number is negative or too large.
    """
    if isinstance(order, np.ndarray):
        return order
    for stage, kind, microbatch, _ in map(_whole, order):
        if kind not in _CODES:
            raise ValueError(f"{kind!r} is no kind of action; use one of {', '.join(KINDS)}")
        if stage < 0 or not 0 <= microbatch < _MICROBATCHES:
            raise ValueError(
                f"{stage}{kind}{microbatch} is no action; number stages and micro-batches from 0"
            )
    columns = (
        (stage << _STAGE_BITS) | (_BESIDE * pair) | (microbatch << 2) | _CODES[kind]
        for stage, kind, microbatch, pair in map(_whole, order)
    )
    return np.fromiter(columns, dtype=np.int64, count=len(order))


def _whole(action: tuple[int, str, int] | Action) -> Action:
    """An action from a plain tuple too."""
    return action if isinstance(action, Action) else Action(*action)


def actions_of(packed: Packed) -> tuple[Action, ...]:
    """Unpack into actions."""
    stage, kind, microbatch = (column.tolist() for column in unpack(packed))
    pairs = is_beside(packed).tolist()
    return tuple(Action(s, KINDS[k], m, b) for s, k, m, b in zip(stage, kind, microbatch, pairs, strict=True))


def in_turn(forwards: Packed, backwards: Packed, lead: int) -> Packed:
    """Run `lead` forwards, then one backward and one forward in turn, then the backwards that are left.

    Examples
    --------
    >>> in_turn(np.array([1, 2, 3]), np.array([-1, -2, -3]), lead=2).tolist()
    [1, 2, -1, 3, -2, -3]
    """
    steady = len(forwards) - lead
    middle = np.stack((backwards[:steady], forwards[lead:]), axis=1).ravel()
    return np.concatenate((forwards[:lead], middle, backwards[steady:]))


def split_in_turn(forwards: Packed, inputs: Packed, weights: Packed, lead: int, lag: int) -> Packed:
    """Run `lead` forwards, then in turn one backward-input, one backward-weight and one forward.

    The backward-weights start `lag` turns late, so that many are still to do at the end; a turn goes without
    what has run out.

    Examples
    --------
    >>> split_in_turn(np.array([1, 2, 3]), np.array([-1, -2, -3]), np.array([10, 20, 30]), 2, 1).tolist()
    [1, 2, -1, 3, -2, 10, -3, 20, 30]
    """
    count, left = len(inputs), len(forwards) - lead
    turns = np.zeros((count + lag, 3), dtype=np.int64)
    there = np.zeros(turns.shape, dtype=bool)
    for column, (rows, actions) in enumerate(
        ((slice(count), inputs), (slice(lag, None), weights), (slice(left), forwards[lead:]))
    ):
        turns[rows, column] = actions
        there[rows, column] = True
    return np.concatenate((forwards[:lead], turns[there]))

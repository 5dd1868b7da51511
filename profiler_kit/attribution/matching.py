"""Collectives of several files matched by when they end, for traces that hold but a part of them: their order tells nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.extract import Extract
from profiler_kit.traces.table import Ints

TOGETHER_NS: Final = 500_000
LEAST_SHARE: Final = 1 / 3  # of the shorter file's collectives: fewer that end together do so by chance
LEAST: Final = 3
MOST: Final = 2_000  # of a file: each is held against each


class Match(NamedTuple):
    """Collectives of one step, one row each, that the extracts `members` share; as in `waiting.Block`."""

    step: int
    members: tuple[int, ...]
    events: Ints


def by_ends(extracts: Sequence[Extract], steps: Sequence[int]) -> list[Match]:
    """What ends together with a collective of the first extract, under the clock offset that brings most together."""
    ours = _rows(extracts[0], steps)
    partners: dict[int, list[tuple[int, int]]] = {}
    for member, other in enumerate(extracts[1:], 1):
        theirs = _rows(other, steps)
        pairs = _pairs(extracts[0], ours, other, theirs)
        if len(pairs) >= max(LEAST, LEAST_SHARE * min(len(ours), len(theirs))):
            for mine, its in pairs:
                partners.setdefault(mine, []).append((member, its))
    return [
        Match(
            int(extracts[0].collectives.step[mine]),
            (0, *(member for member, _ in found)),
            np.array([[mine, *(event for _, event in found)]], np.int64),
        )
        for mine, found in sorted(partners.items())
    ]


def _rows(one: Extract, steps: Sequence[int]) -> Ints:
    return np.flatnonzero(np.isin(one.collectives.step, np.array(steps, np.int64)))[:MOST]


def _pairs(one: Extract, ours: Ints, other: Extract, theirs: Ints) -> list[tuple[int, int]]:
    names: dict[tuple[str, int], int] = {}
    mine, its = (
        np.array(
            [names.setdefault((key.kind, key.size), len(names)) for key in each.collectives.keys] or [0], np.int64
        )[each.collectives.key[rows]]
        for each, rows in ((one, ours), (other, theirs))
    )
    apart = other.collectives.end_ns[theirs][None, :] - one.collectives.end_ns[ours][:, None]
    like = mine[:, None] == its[None, :]
    differences = np.sort(apart[like])
    if not len(differences):
        return []
    near = np.searchsorted(differences, differences + TOGETHER_NS, side="right") - np.arange(len(differences))
    best = int(near.argmax())
    offset = int(np.median(differences[best : best + int(near[best])]))
    close = np.where(like, np.abs(apart - offset), np.iinfo(np.int64).max)
    return [
        (int(ours[i]), int(theirs[j]))
        for i, j in enumerate(close.argmin(axis=1).tolist())
        if close[i, j] <= TOGETHER_NS and int(close[:, j].argmin()) == i
    ]

"""Totals over several steps to figures of one step, in whole numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def apportion(totals: Mapping[Key, int], steps: int, whole: int | None = None) -> dict[Key, int]:
    """`totals` divided by `steps` in whole numbers that sum to `whole`, by default the rounded quotient of the totals' sum.

    What flooring leaves over goes to the largest remainders, one each; of equals to the first.
    """
    shares = {key: total // steps for key, total in totals.items()}
    left = (rounded(sum(totals.values()), steps) if whole is None else whole) - sum(shares.values())
    for key in sorted(totals, key=lambda k: -(totals[k] % steps))[:left]:
        shares[key] += 1
    return shares


def rounded(total: int, steps: int) -> int:
    """`total` divided by `steps`, half rounded up."""
    return (2 * total + steps) // (2 * steps)

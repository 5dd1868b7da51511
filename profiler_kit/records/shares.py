"""Divide totals over several steps into whole numbers per step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def apportion(totals: Mapping[Key, int], steps: int, target: int | None = None) -> dict[Key, int]:
    """Return `totals` divided by `steps` in whole numbers that sum to `target`.

    By default, `target` is the rounded quotient of the sum of `totals`. What flooring loses goes to the entries with
    the largest remainders, one each. Of equal remainders, the first entry gets it.
    """
    shares = {key: total // steps for key, total in totals.items()}
    remainder = (divide_rounded(sum(totals.values()), steps) if target is None else target) - sum(shares.values())
    for key in sorted(totals, key=lambda k: -(totals[k] % steps))[:remainder]:
        shares[key] += 1
    return shares


def divide_rounded(total: int, steps: int) -> int:
    """Return `total` divided by `steps`, with halves rounded up."""
    return (2 * total + steps) // (2 * steps)

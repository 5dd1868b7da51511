"""Sums of records and of values that may be unknown, and totals divided over steps."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
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


Record = TypeVar("Record")


def sum_fields(records: Sequence[Record], *fields: str, **others: object) -> Record:
    """The first of `records` with the sum of each of `fields`, and with `others` replaced. A sum is None if any value is None."""
    columns = {field: [getattr(record, field) for record in records] for field in fields}
    sums = {field: None if None in values else reduce(operator.add, values) for field, values in columns.items()}
    return replace(records[0], **sums, **others)  # type: ignore[type-var]


def sum_known(values: Iterable[Record | None]) -> Record | None:
    """The sum of all `values` that are not None; None if all are None."""
    summands = [value for value in values if value is not None]
    return reduce(operator.add, summands) if summands else None

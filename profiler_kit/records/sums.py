"""Sums of records and of values that may be unknown."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar

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

"""Several records as one, and sums where some values are unknown."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar

Record = TypeVar("Record")


def added(records: Sequence[Record], *fields: str, **others: object) -> Record:
    """The first of `records` with the sums of all in `fields`, and with `others`. A sum is None where one value is None."""
    columns = {field: [getattr(record, field) for record in records] for field in fields}
    sums = {field: None if None in values else reduce(operator.add, values) for field, values in columns.items()}
    return replace(records[0], **sums, **others)  # type: ignore[type-var]


def sum_known(values: Iterable[Record | None]) -> Record | None:
    """The sum of those of `values` that are not None; None where all are."""
    summands = [value for value in values if value is not None]
    return reduce(operator.add, summands) if summands else None

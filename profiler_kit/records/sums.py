"""Several records as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

Record = TypeVar("Record")


def added(records: Sequence[Record], *fields: str, **others: object) -> Record:
    """The first of `records` with the sums of all in `fields`, and with `others`. A sum is None where one value is None."""
    columns = {field: [getattr(record, field) for record in records] for field in fields}
    sums = {field: None if None in values else sum(values) for field, values in columns.items()}
    return replace(records[0], **sums, **others)  # type: ignore[type-var]

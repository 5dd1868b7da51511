"""A trace's events as a pandas data frame, for questions that no table here answers. pandas is imported when asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler_kit.errors import KitError
from profiler_kit.traces.columns import Column, events
from profiler_kit.traces.table import Table

if TYPE_CHECKING:
    import pandas


def events_frame(table: Table, owners: Iterable[Column] = ()) -> pandas.DataFrame:
    """The events of `table`, a row each, with the columns of docs/events.md; `owners` are further ones.

    The index is the row's number; ``attrs`` holds what is said of the trace as a whole.

    Texts are categories; integers that may be absent are nullable (``Int64``), so that none turns into a float.

    Raises: KitError where pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise KitError(
            "data frames need pandas, which is not installed", hint="pip install 'profiler-kit[pandas]'"
        ) from error
    found = events(table, owners)
    columns = {column.name: _series(column, found.length, pandas) for column in found.columns}
    frame: pandas.DataFrame = pandas.DataFrame(columns, index=pandas.RangeIndex(found.length, name="row"), copy=False)
    frame.attrs.update(found.about)
    return frame


def _series(column: Column, length: int, pandas: Any) -> Any:
    values, present = column.part(0, length)
    if column.labels is not None:
        # Names that differ in broken bytes alone read the same.
        codes, labels = pandas.factorize(np.array(column.labels, dtype=object))
        codes = np.append(codes, -1)[np.where(present, values, -1)]
        return pandas.Categorical.from_codes(codes, categories=pandas.Index(labels, dtype=object))
    if present.all():
        return values
    if values.dtype.kind == "f":
        return np.where(present, values, np.nan)
    return pandas.arrays.IntegerArray(values, ~present)

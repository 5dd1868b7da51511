"""Which kind of iterator hands over the batches: the profiler names its class in the range around each fetch."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.spans import sum_by
from profiler_kit.attribution.times import times
from profiler_kit.traces.names import LOADER_PREFIX

# Source: torch/utils/data/dataloader.py, _BaseDataLoaderIter._profile_name.
_FETCH: Final = re.compile(re.escape(LOADER_PREFIX) + r"(\w{1,100})\.__next__\Z")


def loaders(owned: Owned) -> tuple[str, ...]:
    """The classes of the iterators that fetched batches, those that took longest first."""
    table, rows = owned.table, owned.host.rows
    classes = {i: found.group(1) for i, name in enumerate(table.names) if (found := _FETCH.match(name))}
    if not classes:
        return ()
    rows = rows[np.isin(table.name[rows], np.array(list(classes), np.int32))]
    start, end = times(table, rows)
    spent = sum_by(table.name[rows], end - start, len(table.names))
    return tuple(dict.fromkeys(classes[i] for i in sorted(classes, key=lambda i: -int(spent[i]))))

"""When events begin and end, within bounds in which differences of times do not run over."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.traces.table import Ids, Ints, Table

LATEST_NS: Final = 1 << 61  # the year 2043, for times that count from 1970
_LONGEST_NS: Final = 1 << 46  # 19 hours: of 100,000 such events the durations can still be added up


def times(table: Table, rows: Ids) -> tuple[Ints, Ints]:
    """Start and end of each of `rows`; what lasts less than nothing ends as it starts."""
    start = np.clip(table.start_ns[rows], -LATEST_NS, LATEST_NS)
    return start, start + np.clip(table.duration_ns[rows], 0, _LONGEST_NS)

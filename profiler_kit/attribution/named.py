"""Which of many events have a name that fits a pattern."""

from __future__ import annotations

import re

import numpy as np

from profiler_kit.traces.table import Ids, Mask


def named(names: tuple[str, ...], ids: Ids, pattern: re.Pattern[str]) -> Mask:
    """Of which of `ids` (positions in `names`) the name holds the pattern; each name is looked at once."""
    used = np.zeros(len(names), np.bool_)
    used[ids] = True
    hit = np.zeros(len(names), np.bool_)
    hit[[i for i in np.flatnonzero(used).tolist() if pattern.search(names[i])]] = True
    return hit[ids]

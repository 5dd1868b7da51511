"""The largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from profiler_kit.records.counts import WhatIf

MOST_BATCH: Final = 1 << 20


def largest(at: Callable[[int], WhatIf], bytes_of: Callable[[WhatIf], int], goal: int) -> WhatIf | None:
    """The answer for the largest batch whose `bytes_of` are at most `goal`; None where not even one sample's are.

    They are nearly linear in it: each guess follows from two known answers, which `at` gives.
    """
    low = at(1)
    if bytes_of(low) > goal:
        return None
    high = at(2)
    while bytes_of(high) <= goal:
        guess = _crossing(low, high, bytes_of, goal)
        low, high = high, at(min(max(guess, (high.batch or 0) + 1), 2 * MOST_BATCH))
        if (low.batch or 0) >= MOST_BATCH:
            return low
    between = False
    while (high.batch or 0) - (low.batch or 0) > 1:
        least, most = (low.batch or 0) + 1, (high.batch or 0) - 1
        guess = (least + most) // 2 if between else _crossing(low, high, bytes_of, goal)
        found = at(min(max(guess, least), most))
        low, high = (found, high) if bytes_of(found) <= goal else (low, found)
        between = not between  # a straight line may creep along one side
    return low


def _crossing(low: WhatIf, high: WhatIf, bytes_of: Callable[[WhatIf], int], goal: int) -> int:
    """The last batch below `goal` on the straight line through two answers."""
    first, second = low.batch or 0, high.batch or 0
    rise = bytes_of(high) - bytes_of(low)
    if rise <= 0:
        return 2 * second
    return first + (goal - bytes_of(low)) * (second - first) // rise

"""Work of a program that trains nothing on inputs that grow from round to round, as of generation without a key-value cache.

A layer that gets n positions, then n + 1, then n + 2, computes most of its outputs again. With the results of earlier positions,
each round needs the work of the new ones only, with as many launches as before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.totals import tensor_shapes
from profiler_kit.traces.table import NONE, Ids, Mask

MIN_SIZES: Final = 3  # different sizes in a row
# Layers that compute each position of their input alone. An attention whose scores grow by a column each round has a cache.
_LAYER: Final = re.compile(r"\Aaten::(?:linear|addmm|conv[123]d)\Z")
_Key = tuple[int, int, tuple[int, ...]]  # the operator, the dimension that grows, the other dimensions


def work_on_growing_inputs(attribution: Attribution, launches: Ids) -> Mask:
    """Return the events of operators whose first input grows by the same size from round to round.

    There are none if no layer is among these operators. `launches`: of device work.
    """
    host, table = attribution.host, attribution.table
    outermost = outermost_enclosing(host.parent, host.operator)
    at = np.unique(outermost[launches[launches != NONE]])
    at = at[at != NONE]
    at = at[np.argsort(host.start_ns[at], kind="stable")]
    calls: defaultdict[_Key, list[tuple[int, int]]] = defaultdict(list)
    for event, name, shape in zip(
        at.tolist(), table.name[host.rows[at]].tolist(), _first_shapes(attribution, at), strict=True
    ):
        for i, size in enumerate(shape):
            calls[name, i, (*shape[:i], NONE, *shape[i + 1 :])].append((event, size))
    growing = {key: rows for key, rows in calls.items() if _grows([size for _, size in rows])}
    is_member = np.zeros(len(host.rows) + 1, np.bool_)
    if any(_LAYER.match(table.names[name]) for name, _, _ in growing):
        is_member[[event for rows in growing.values() for event, _ in rows]] = True
    members: Mask = is_member[outermost]
    return members


def _first_shapes(attribution: Attribution, events: Ids) -> list[tuple[int, ...]]:
    """Return the shape of the first tensor of each event; () where it is unknown."""
    texts = attribution.table.shapes[attribution.host.rows[events]]
    shapes = {i: tensor_shapes(attribution.table.texts[i])[:1] if i != NONE else () for i in np.unique(texts).tolist()}
    return [shapes[i][0] if shapes[i] else () for i in texts.tolist()]


def _grows(sizes: list[int]) -> bool:
    """Return whether sizes grow by the same amount whenever they change, apart from new beginnings."""
    changes = np.diff(sizes)
    up, down = changes[changes > 0], int((changes < 0).sum())
    return len(up) >= MIN_SIZES - 1 and bool((up == up[0]).all()) and MIN_SIZES * down <= len(up)

"""Where forward passes are in traces without modules: from the ops whose nodes backward runs to the first of these nodes."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.context import Context
from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.nesting import Nesting, below, outermost
from profiler_kit.attribution.roles import Role
from profiler_kit.attribution.step_marks import Steps
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask, Table

_SEED: Final = "aten::ones_like"  # the gradient of the loss with respect to itself
_READ: Final = "aten::item"


class Windows(NamedTuple):
    """Which positions lie in a forward pass; of those after its last op, which read the loss, and which make backward's seed."""

    forward: Mask
    loss: Mask
    backward: Mask


def forward_windows(
    table: Table, nesting: Nesting, context: Context, role: Bytes, nodes: Nodes, steps: Steps
) -> Windows:
    """The forward passes of a trace.

    A pass goes on from one op that backward uses to the next while nothing else comes between them on its thread: no node that
    this thread's ops made, no border of a step, no optimizer, DataLoader or call of backward. After its last such op it goes on
    up to the first node, or to a collective, which is of something else: of the next batch, of figures to be shown.
    """
    found = Windows(*(np.zeros(len(nesting.rows), dtype=bool) for _ in range(3)))
    used = np.unique(nodes.forward[nodes.exact])
    used = used[(context.node[used] == NONE) & (context.mark[used] == NONE)]
    if not len(used):
        return found
    maker = np.where(nodes.forward != NONE, nesting.thread[nodes.forward], NONE)
    other = np.flatnonzero(np.isin(role, (Role.OPTIMIZER, Role.DATA, Role.BACKWARD, Role.COLLECTIVE)))
    roots = _root_operators(table, nesting, context)
    bounds = np.searchsorted(nesting.thread, np.arange(int(nesting.thread.max()) + 2))
    for thread in np.unique(nesting.thread[used]).tolist():
        here = slice(int(bounds[thread]), int(bounds[thread + 1]))
        passes = _passes(
            nesting,
            context,
            used[nesting.thread[used] == thread],
            np.sort(nesting.start_ns[nodes.positions[maker == thread]]),
            other[nesting.thread[other] == thread],
            role,
            steps,
        )
        times = nesting.start_ns[here]
        # what goes on after the pass is around it and what follows: the loop's own range, a call of its function
        last = passes.until[np.maximum(np.searchsorted(passes.since, times, side="right") - 1, 0)]
        found.forward[here] = _covered(times, passes.since, passes.until) & (nesting.end_ns[here] <= last)
        _after_last_op(table, nesting, roots[nesting.thread[roots] == thread], passes, found)
    return found


class _Passes(NamedTuple):
    """Forward passes on one thread: since when, the end of the last op that backward uses, and until when; the first node after
    (or the end of time); whether the last op is the loss's.
    """

    since: Ints
    last: Ints
    until: Ints
    node: Ints
    to_loss: Mask


def _passes(
    nesting: Nesting, context: Context, used: Ids, ran: Ints, other: Ints, role: Bytes, steps: Steps
) -> _Passes:
    """The passes of the ops `used` on one thread. `ran`: when their nodes began; `other`: marks and collectives on the thread."""
    collective = role[other] == Role.COLLECTIVE
    borders = np.concatenate((ran, nesting.start_ns[other[~collective]], steps.start_ns, steps.end_ns))
    borders = np.unique(borders)
    root = outermost(used, nesting.parent, context.operator)
    begins, ends = nesting.start_ns[root], nesting.end_ns[root]
    section = np.searchsorted(borders, nesting.start_ns[used], side="right")
    first = np.flatnonzero(np.concatenate(([True], section[1:] != section[:-1])))
    final = np.append(first[1:], len(used)) - 1
    since, last = begins[first], np.maximum.reduceat(ends, first)
    forever = np.iinfo(np.int64).max
    node = np.append(ran, forever)[np.searchsorted(ran, last)]
    following = np.append(borders, forever)[section[first]]
    elsewhere = np.append(np.sort(nesting.start_ns[other[collective]]), forever)
    until = np.minimum(following, elsewhere[np.searchsorted(elsewhere[:-1], last)])
    until = np.where(following == node, np.maximum(until, last), last)
    return _Passes(since, last, until, np.where(following == node, node, forever), context.loss[used[final]] != NONE)


def _covered(times: Ints, since: Ints, until: Ints) -> Mask:
    """Which of the ascending `times` lie in one of the stretches."""
    change = np.zeros(len(times) + 1, dtype=np.int32)
    np.add.at(change, np.searchsorted(times, since), 1)
    np.add.at(change, np.searchsorted(times, until), -1)
    return np.cumsum(change[:-1]) > 0


def _root_operators(table: Table, nesting: Nesting, context: Context) -> Ids:
    """Positions of the operators that no operator encloses."""
    own = context.operator == np.arange(len(context.operator))
    around = np.append(context.operator, np.int32(NONE))[nesting.parent]
    return np.flatnonzero(own & (around == NONE) & (table.kind[nesting.rows] == Kind.OPERATOR)).astype(np.int32)


def _after_last_op(table: Table, nesting: Nesting, roots: Ids, passes: _Passes, found: Windows) -> None:
    """Tells reading the loss and making backward's seed from the rest after a pass's last op; `roots` are of its thread."""
    begins = nesting.start_ns[roots]
    at = np.searchsorted(passes.last, begins, side="right") - 1
    after = (at >= 0) & (begins < passes.node[np.maximum(at, 0)])
    names = table.name[nesting.rows[roots]]
    seed = np.array([name == _SEED for name in table.names], dtype=bool)[names]
    read = np.array([name == _READ for name in table.names], dtype=bool)[names]
    # The seed is what the thread does last before the first node runs.
    following = np.append(begins[1:], np.iinfo(np.int64).max)
    seed &= after & (following >= passes.node[np.maximum(at, 0)])
    read &= after & (begins < passes.until[np.maximum(at, 0)]) & passes.to_loss[np.maximum(at, 0)]
    found.backward[:] |= below(nesting, roots[seed])
    found.loss[:] |= below(nesting, roots[read])

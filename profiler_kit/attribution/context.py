"""What is around each host event: its operator, autograd node, module, mark, loss; all by position."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.nesting import Nesting, nearest
from profiler_kit.attribution.roles import Role
from profiler_kit.traces.table import NONE, Bytes, Ids, Kind, Mask, Table


class Context(NamedTuple):
    """Positions of the innermost event of a sort that each event is or that encloses it, NONE where there is none.

    Of two events around the same one, that with the higher position is the inner one. `mark`: a phase of ours, the optimizer,
    the DataLoader, a call of backward. `module`: a module's call or a compiled region. `redo`: a module's call or an operator
    that makes nodes: forward work, where it is inside a node.
    `numbered`: positions of the operators with a sequence number; `calls`: of modules' calls.
    """

    operator: Ids
    python: Ids
    node: Ids
    mark: Ids
    loss: Ids
    module: Ids
    wrapper: Ids
    redo: Ids
    numbered: Ids
    calls: Ids


# What stands around operators and is none itself.
_NO_OPERATORS: Final = (Role.STEP, Role.PHASE, Role.OPTIMIZER, Role.DATA, Role.OUR_MODULE, Role.FORWARD)
_LOSSES: Final = (Role.LOSS, Role.LOSS_MODULE)


def surroundings(table: Table, nesting: Nesting, role: Bytes) -> Context:
    """The context of the events of `nesting`, whose roles are `role`."""
    kind = table.kind[nesting.rows]
    numbered = (kind == Kind.OPERATOR) & (table.sequence[nesting.rows] >= 0) & (role != Role.NODE)
    # Few events have a role: what is around an event is looked up among these alone.
    telling = numbered | (role != Role.PLAIN)
    around = nearest(nesting.parent, telling)
    some = np.flatnonzero(telling).astype(np.int32)
    place = np.full(len(role) + 1, NONE, dtype=np.int32)  # the last one stands for "nothing around"
    place[some] = np.arange(len(some), dtype=np.int32)
    outer = np.append(around, np.int32(NONE))[nesting.parent[some]]
    within = place[outer]
    place = place[around]
    some = np.append(some, np.int32(NONE))

    def innermost(wanted: Mask) -> Ids:
        return np.append(some[nearest(within, wanted)], np.int32(NONE))[place]

    of = role[some[:-1]]
    modules = _modules(of)
    # A graph run by a node is backward's: its name says nothing of whose.
    modules &= (of != Role.GRAPH) | (nearest(within, of == Role.NODE) == NONE)
    return Context(
        # The first profilers wrote marks as operators.
        operator=nearest(nesting.parent, (kind == Kind.OPERATOR) & ~np.isin(role, _NO_OPERATORS)),
        python=nearest(nesting.parent, kind == Kind.PYTHON),
        node=innermost(of == Role.NODE),
        mark=innermost(_marks(of)),
        loss=innermost(np.isin(of, _LOSSES)),
        module=innermost(modules),
        wrapper=innermost(of == Role.FORWARD),
        redo=innermost(modules | numbered[some[:-1]]),
        numbered=np.flatnonzero(numbered).astype(np.int32),
        calls=some[:-1][modules],
    )


def _marks(of: Bytes) -> Mask:
    """Which of the roles `of` are marks: phase marks of ours alone, where there are any."""
    ours = of == Role.PHASE
    return ours if ours.any() else np.isin(of, (Role.OPTIMIZER, Role.DATA, Role.BACKWARD))


def _modules(of: Bytes) -> Mask:
    """Which of the roles `of` are modules' calls: by marks of ours alone, where there are any."""
    ours = of == Role.OUR_MODULE
    return ours if ours.any() else np.isin(of, (Role.MODULE, Role.LOSS_MODULE, Role.REGION, Role.GRAPH))

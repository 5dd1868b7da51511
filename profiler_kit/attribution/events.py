"""The host's events: what the name of each says that it is, and what is around it."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.nesting import nest
from profiler_kit.records import marks
from profiler_kit.traces.names import (
    ACCUMULATE,
    GRAPH_PREFIX,
    LOADER_PREFIX,
    MODULE_PREFIX,
    NODE_PREFIX,
    OPTIMIZER_STEP,
    OPTIMIZER_ZERO,
    STEP_PREFIX,
    calls_collective,
)
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask, Table


class Role(IntEnum):
    """What a host event is to attribution."""

    PLAIN = 0
    STEP = 1
    PHASE = 2  # a phase mark of ours
    OPTIMIZER = 3
    DATA = 4
    BACKWARD = 5  # a call of backward, on the thread that asks for it
    LOSS = 6
    MODULE = 7  # an nn.Module's call
    LOSS_MODULE = 8
    OUR_MODULE = 9  # a module mark of ours
    REGION = 10  # code that torch.compile made
    FORWARD = 11  # the forward call of a wrapper that names itself: DistributedDataParallel.forward
    NODE = 12
    COLLECTIVE = 13  # a call that launches one
    GRAPH = 14  # the call of a traced or compiled graph, of forward or of backward


_LOSSES: Final = (
    r"cross_entropy(_loss)?(2d|_nd)?|nll_loss(2d|_nd)?(_forward)?|mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy(_with_logits)?|"
    r"kl_div|_?ctc_loss|cosine_embedding_loss|soft_margin_loss|hinge_embedding_loss|margin_ranking_loss|triplet_margin_loss|"
    r"triplet_margin_with_distance_loss|gaussian_nll_loss|poisson_nll_loss|multi_margin_loss|multilabel\w*_loss\w*|linear_cross_entropy"
)
_LOSS_OP: Final = re.compile(rf"aten::(_?(cudnn|thnn|use_cudnn)\w*_)?({_LOSSES})\Z")
# A custom function's forward, as autograd records it: LigerFusedLinearCrossEntropyFunction, FocalLoss
_LOSS_FUNCTION: Final = re.compile(r"\w*(CrossEntropy\w*|Loss(Function|Fn)?)\Z")
# Not ModelWithLoss, LossWrapper: they call the network too.
_LOSS_MODULE: Final = re.compile(
    r"(?!\w*(With|And|Wrapper|Model|Net))\w*(Loss([1-3]d|Fn|Function)?|Criterion|CrossEntropy\w*)(_\d+)?\Z"
)
_WRAPPER: Final = re.compile(r"(DistributedDataParallel|FullyShardedDataParallel)\.forward|FSDP::\w*(pre|post)_forward")
_WRAPPER_BACKWARD: Final = re.compile(r"FSDP::\w*(pre|post)_backward|FullyShardedDataParallel\._(pre|post)_backward")
_COMPILED: Final = re.compile(r"Torch-Compiled Region|CompiledFunction\Z")
_PYTHON: Final = (
    (
        Role.LOSS,
        re.compile(rf"torch/nn/functional\.py\(\d+\): ({_LOSSES})\Z|transformers/loss/\w+\.py\(\d+\): \w*Loss"),
    ),
    (
        Role.BACKWARD,
        re.compile(r"torch/(_tensor\.py\(\d+\): backward|autograd/__init__\.py\(\d+\): (backward|grad))\Z"),
    ),
    (
        Role.OPTIMIZER,
        re.compile(
            r"torch/nn/utils/clip_grad\.py\(\d+\): clip_grad_\w+\Z|"
            r"torch/(cuda/)?amp/grad_scaler\.py\(\d+\): (unscale_|step|update)\Z"
        ),
    ),
    (Role.DATA, re.compile(r"torch/utils/data/dataloader\.py\(\d+\): __next__\Z")),
)


def _roles(table: Table, rows: Ids) -> Bytes:
    """The role of each of the host events `rows`, by its name, and a node's by its numbers too."""
    used = np.zeros(len(table.names), dtype=bool)
    used[table.name[rows]] = True
    of_range = np.zeros(len(table.names), dtype=np.int8)
    of_call = np.zeros(len(table.names), dtype=np.int8)
    for number in np.flatnonzero(used).tolist():
        name = table.names[number]
        if name.startswith(MODULE_PREFIX):
            of_call[number] = _module_role(name)
        elif ".py(" in name:
            of_call[number] = next((role for role, pattern in _PYTHON if pattern.search(name)), Role.PLAIN)
        else:
            of_range[number] = _range_role(name)
    kind = table.kind[rows]
    name_of = table.name[rows]
    role = np.where(kind == Kind.PYTHON, of_call[name_of], of_range[name_of])
    role[kind == Kind.RUNTIME] = Role.PLAIN
    operator = kind == Kind.OPERATOR
    # A custom function's node has any name; only nodes say which thread their forward ran on.
    role[operator & (table.forward_thread[rows] != 0) & (table.sequence[rows] >= 0)] = Role.NODE
    # What authors call their own ranges is theirs.
    role[(kind == Kind.ANNOTATION) & np.isin(role, (Role.NODE, Role.LOSS))] = Role.PLAIN
    return role


def _module_role(name: str) -> Role:
    """The role of a module's call."""
    if name.startswith("GraphModule_", len(MODULE_PREFIX)):
        return Role.GRAPH
    return Role.LOSS_MODULE if _LOSS_MODULE.match(name, len(MODULE_PREFIX)) else Role.MODULE


def _range_role(name: str) -> Role:
    """The role of an operator or a range called `name`."""
    if name.startswith("aten::"):
        return Role.LOSS if _LOSS_OP.match(name) else Role.PLAIN
    if name.startswith((NODE_PREFIX, ACCUMULATE)):
        return Role.NODE
    if name.startswith((STEP_PREFIX, marks.STEP)):
        return Role.STEP
    if name.startswith(marks.PHASE):
        return Role.PHASE
    if name.startswith(marks.MODULE):
        return Role.OUR_MODULE
    if name.startswith((OPTIMIZER_STEP, OPTIMIZER_ZERO)):
        return Role.OPTIMIZER
    if name.startswith(LOADER_PREFIX):
        return Role.DATA
    if _WRAPPER.match(name):
        return Role.FORWARD
    if _WRAPPER_BACKWARD.match(name):
        return Role.BACKWARD
    if calls_collective(name):
        return Role.COLLECTIVE
    if name.startswith(GRAPH_PREFIX):
        return Role.GRAPH
    if _COMPILED.match(name):
        return Role.REGION
    return Role.LOSS if _LOSS_FUNCTION.match(name) else Role.PLAIN


# ---- what is around each


class HostEvents(NamedTuple):
    """The host's events by thread, then start, enclosing before enclosed; what each is, and what is around it.

    `rows` to `parent` as in `Nesting`. `role`: a `Role`. The others are positions, NONE where there is none. Up to `redo` they
    are of the innermost event of a sort that each event is or that encloses it; `outer_operator` and `outer_node` are the
    outermost. Of two events around the same one, that with the higher position is the inner one. `mark`: a phase of ours, the
    optimizer, the DataLoader, a call of backward. `module`: a module's call or a compiled region. `redo`: a module's call or an
    operator that makes nodes: forward work, where it is inside a node.
    `numbered`: the operators with a sequence number; `calls`: modules' calls.
    """

    rows: Ids
    start_ns: Ints
    end_ns: Ints
    recorded_end_ns: Ints
    thread: Ids
    parent: Ids
    role: Bytes
    operator: Ids
    outer_operator: Ids
    python: Ids
    node: Ids
    outer_node: Ids
    mark: Ids
    loss: Ids
    module: Ids
    wrapper: Ids
    redo: Ids
    numbered: Ids
    calls: Ids

    def has(self, *roles: Role) -> bool:
        """Whether any event has one of `roles`."""
        return bool(np.isin(self.role, roles).any())


# What encloses operators and is none itself.
_NO_OPERATORS: Final = (Role.STEP, Role.PHASE, Role.OPTIMIZER, Role.DATA, Role.OUR_MODULE, Role.FORWARD)


def host_events(table: Table) -> HostEvents:
    """The host's events of `table`."""
    nesting = nest(table)
    rows, parent = nesting.rows, nesting.parent
    role = _roles(table, rows)
    kind = table.kind[rows]
    numbered = (kind == Kind.OPERATOR) & (table.sequence[rows] >= 0) & (role != Role.NODE)
    # Few events have a role: what is around an event is looked up among these alone.
    marking = numbered | (role != Role.PLAIN)
    around = nearest(parent, marking)
    few = np.flatnonzero(marking).astype(np.int32)
    place = np.full(len(role) + 1, NONE, dtype=np.int32)  # the last one stands for "nothing around"
    place[few] = np.arange(len(few), dtype=np.int32)
    outer = np.append(around, np.int32(NONE))[parent[few]]
    within = place[outer]
    place = place[around]
    few = np.append(few, np.int32(NONE))

    def innermost(mask: Mask) -> Ids:
        return np.append(few[nearest(within, mask)], np.int32(NONE))[place]

    of = role[few[:-1]]
    # Phase marks and module marks of ours are the only ones that count where there are any.
    ours = of == Role.PHASE
    marked = ours if ours.any() else np.isin(of, (Role.OPTIMIZER, Role.DATA, Role.BACKWARD))
    modules = of == Role.OUR_MODULE
    if not modules.any():
        modules = np.isin(of, (Role.MODULE, Role.LOSS_MODULE, Role.REGION, Role.GRAPH))
    # A graph run by a node is backward's: its name says nothing of whose.
    modules &= (of != Role.GRAPH) | (nearest(within, of == Role.NODE) == NONE)
    # The first profilers wrote marks as operators.
    operator = nearest(parent, (kind == Kind.OPERATOR) & ~np.isin(role, _NO_OPERATORS))
    node = innermost(of == Role.NODE)
    return HostEvents(
        *nesting,
        role=role,
        operator=operator,
        outer_operator=outermost(parent, operator),
        python=nearest(parent, kind == Kind.PYTHON),
        node=node,
        outer_node=outermost(parent, node),
        mark=innermost(marked),
        loss=innermost(np.isin(of, (Role.LOSS, Role.LOSS_MODULE))),
        module=innermost(modules),
        wrapper=innermost(of == Role.FORWARD),
        redo=innermost(modules | numbered[few[:-1]]),
        numbered=np.flatnonzero(numbered).astype(np.int32),
        calls=few[:-1][modules],
    )


def nearest(parent: Ids, mask: Mask) -> Ids:
    """For each position the innermost position of `mask` that it is or that encloses it, or NONE.

    Each round looks twice as far up as the one before, so that the deepest nesting costs few rounds.
    """
    count = len(parent)
    position = np.append(np.where(parent == NONE, np.int32(count), parent), np.int32(count)).astype(np.int32)
    stop = np.append(mask, True)
    position[stop] = np.arange(count + 1, dtype=np.int32)[stop]
    while True:
        next_position = position[position]
        if np.array_equal(next_position, position):
            break
        position = next_position
    position[position == count] = NONE
    return position[:-1]


def outermost(parent: Ids, innermost: Ids) -> Ids:
    """For each position the outermost event of a sort that it is or that encloses it, given the `innermost` one, or NONE."""
    top = np.append(innermost, np.int32(NONE))
    inner = np.flatnonzero(top[:-1] == np.arange(len(innermost)))  # the events of the sort
    above = top[parent[inner]]
    up = np.arange(len(top), dtype=np.int32)
    up[inner] = np.where(above == NONE, inner, above)
    while len(inner):
        inner = inner[up[up[inner]] != up[inner]]
        up[inner] = up[up[inner]]
    return np.where(innermost == NONE, np.int32(NONE), up[innermost])

"""The host events: the role of each by its name, and the events that enclose it."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.nesting import nest
from profiler_kit.records import marks
from profiler_kit.records.counts import Phase
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
    """The role of a host event in the attribution."""

    PLAIN = 0
    STEP = 1
    PHASE = 2  # a phase mark of profiler_kit
    OPTIMIZER = 3
    DATA = 4
    BACKWARD = 5  # a call of backward, on the thread of the caller
    LOSS = 6
    MODULE = 7  # an nn.Module's call
    LOSS_MODULE = 8
    OUR_MODULE = 9  # a module mark of profiler_kit
    REGION = 10  # code compiled by torch.compile
    FORWARD = 11  # the forward call of a wrapper that is recorded under its name: DistributedDataParallel.forward
    NODE = 12
    COLLECTIVE = 13  # a call that launches a collective
    GRAPH = 14  # the call of a traced or compiled graph, in forward or in backward
    USER_PHASE = 15  # a range of the user's own, named after a phase


_LOSSES: Final = (
    r"cross_entropy(_loss)?(2d|_nd)?|nll_loss(2d|_nd)?(_forward)?|mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy(_with_logits)?|"
    r"kl_div|_?ctc_loss|cosine_embedding_loss|soft_margin_loss|hinge_embedding_loss|margin_ranking_loss|triplet_margin_loss|"
    r"triplet_margin_with_distance_loss|gaussian_nll_loss|poisson_nll_loss|multi_margin_loss|multilabel\w*_loss\w*|linear_cross_entropy"
)
_LOSS_OP: Final = re.compile(rf"aten::(_?(cudnn|thnn|use_cudnn)\w*_)?({_LOSSES})\Z")
# A custom function's forward, as autograd records it: LigerFusedLinearCrossEntropyFunction, FocalLoss
_LOSS_FUNCTION: Final = re.compile(r"\w*(CrossEntropy\w*|Loss(Function|Fn)?)\Z")
# Not ModelWithLoss or LossWrapper: they call the network too.
_LOSS_MODULE: Final = re.compile(
    r"(?!\w*(With|And|Wrapper|Model|Net))\w*(Loss([1-3]d|Fn|Function)?|Criterion|CrossEntropy\w*)(_\d+)?\Z"
)
_WRAPPER: Final = re.compile(r"(DistributedDataParallel|FullyShardedDataParallel)\.forward|FSDP::\w*(pre|post)_forward")
_WRAPPER_BACKWARD: Final = re.compile(r"FSDP::\w*(pre|post)_backward|FullyShardedDataParallel\._(pre|post)_backward")
# Words of ranges that users record: record_function("forward"), "## backward ##", "fwd", "optimizer.step".
_PHASE_WORDS: Final[dict[str, Phase]] = {
    "forward": "forward", "fwd": "forward", "backward": "backward", "bwd": "backward", "optimizer": "optimizer",
    "optim": "optimizer", "loss": "loss", "criterion": "loss",
}  # fmt: skip
# These words have other meanings too, as in data_parallel: they name a phase only alone.
_PHASE_NAMES: Final[dict[str, Phase]] = {"data": "data", "transfer": "transfer", "other": "other"}
_NEUTRAL_WORDS: Final = frozenset(("train", "training", "eval", "model", "step", "pass", "phase", "run", "compute"))
_DATA_RANGE: Final = re.compile(r"data_?load(er|ing)?|(load|get|next|fetch|wait_for)_(data|batch)")
_WORD: Final = re.compile(r"[A-Za-z]+")  # MyLoss is one word: the name of a class, not of a phase
_MAX_RANGE_CHARS: Final = 200
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
    """Return the role of each of the host events `rows`, by its name. For autograd nodes, the numbers count too."""
    used = np.zeros(len(table.names), dtype=bool)
    used[table.name[rows]] = True
    range_role = np.zeros(len(table.names), dtype=np.int8)
    call_role = np.zeros(len(table.names), dtype=np.int8)
    for number in np.flatnonzero(used).tolist():
        name = table.names[number]
        if name.startswith(MODULE_PREFIX):
            call_role[number] = _module_role(name)
        elif ".py(" in name:
            call_role[number] = next((role for role, pattern in _PYTHON if pattern.search(name)), Role.PLAIN)
        else:
            range_role[number] = _range_role(name)
    kind = table.kind[rows]
    name_of = table.name[rows]
    role = np.where(kind == Kind.PYTHON, call_role[name_of], range_role[name_of])
    role[kind == Kind.RUNTIME] = Role.PLAIN
    is_operator = kind == Kind.OPERATOR
    # A custom function's node may have any name. Only nodes carry the thread of their forward.
    role[is_operator & (table.forward_thread[rows] != 0) & (table.sequence[rows] >= 0)] = Role.NODE
    # A user's own range may have the name of a node or a loss.
    is_range = kind == Kind.ANNOTATION
    role[is_range & np.isin(role, (Role.NODE, Role.LOSS))] = Role.PLAIN
    plain_ranges = np.flatnonzero(is_range & (role == Role.PLAIN))
    names = np.unique(name_of[plain_ranges])
    phase_names = [number for number in names.tolist() if user_phase(table.names[number]) is not None]
    role[plain_ranges[np.isin(name_of[plain_ranges], phase_names)]] = Role.USER_PHASE
    return role


def user_phase(name: str) -> Phase | None:
    """Return the phase that the name of a user's range states: "## forward:over_arch ##", "Backward 3", "train/optimizer_step".

    The first or the last word is that of a phase, and no word is that of another; or the name is that of a phase: "data".
    """
    words = [word.lower() for word in _WORD.findall(name[:_MAX_RANGE_CHARS])]
    if _DATA_RANGE.fullmatch("_".join(words)):
        return "data"
    words = [word for word in words if word not in _NEUTRAL_WORDS]
    if len(words) == 1 and words[0] in _PHASE_NAMES:
        return _PHASE_NAMES[words[0]]
    if not words:
        return None
    phases = {_PHASE_WORDS[word] for word in words if word in _PHASE_WORDS}
    at_the_edge = words[0] in _PHASE_WORDS or words[-1] in _PHASE_WORDS
    return phases.pop() if at_the_edge and len(phases) == 1 else None


def _module_role(name: str) -> Role:
    """Return the role of a module's call."""
    if name.startswith("GraphModule_", len(MODULE_PREFIX)):
        return Role.GRAPH
    return Role.LOSS_MODULE if _LOSS_MODULE.match(name, len(MODULE_PREFIX)) else Role.MODULE


def _range_role(name: str) -> Role:
    """Return the role of an operator or a range called `name`."""
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


# ---- enclosing events


class HostEvents(NamedTuple):
    """The host events, with the role of each and the events that enclose it.

    The order is by thread, then start, enclosing before enclosed.

    `rows` to `parent` are those of `Nesting`. `role` is a `Role`. All other columns hold positions, NONE if there is
    none. The columns up to `redo` hold the innermost event of a kind that encloses the event or is the event;
    `outer_operator` and `outer_node` hold the outermost. Of two enclosing events, the one with the higher position is
    the inner one.

    `mark`: a phase mark of profiler_kit, the optimizer, the DataLoader or a call of backward. `module`: a module's
    call or a compiled region. `user_phase`: a range of the user's, named after a phase. `redo`: a module's call or an
    operator that creates nodes; inside a node this is forward work that is recomputed.
    `numbered`: the operators with a sequence number. `calls`: the module calls.
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
    user_phase: Ids
    redo: Ids
    numbered: Ids
    calls: Ids

    def has(self, *roles: Role) -> bool:
        """Return whether any event has one of `roles`."""
        return bool(np.isin(self.role, roles).any())


# Roles of ranges that enclose operators and are not operators themselves.
_RANGE_ROLES: Final = (Role.STEP, Role.PHASE, Role.OPTIMIZER, Role.DATA, Role.OUR_MODULE, Role.FORWARD)


def host_events(table: Table) -> HostEvents:
    """Return the host events of `table`."""
    nesting = nest(table)
    rows, parent = nesting.rows, nesting.parent
    role = _roles(table, rows)
    kind = table.kind[rows]
    numbered = (kind == Kind.OPERATOR) & (table.sequence[rows] >= 0) & (role != Role.NODE)
    # Few events have a role. The search for enclosing events runs over these alone.
    has_role = numbered | (role != Role.PLAIN)
    nearest_role = innermost_enclosing(parent, has_role)
    role_positions = np.flatnonzero(has_role).astype(np.int32)
    index = np.full(len(role) + 1, NONE, dtype=np.int32)  # the last entry means: no enclosing event
    index[role_positions] = np.arange(len(role_positions), dtype=np.int32)
    enclosing_role = np.append(nearest_role, np.int32(NONE))[parent[role_positions]]
    role_parent = index[enclosing_role]
    index = index[nearest_role]
    role_positions = np.append(role_positions, np.int32(NONE))

    def innermost(mask: Mask) -> Ids:
        return np.append(role_positions[innermost_enclosing(role_parent, mask)], np.int32(NONE))[index]

    role_of = role[role_positions[:-1]]
    # If the trace has phase marks or module marks of profiler_kit, no others count.
    is_phase_mark = role_of == Role.PHASE
    is_mark = is_phase_mark if is_phase_mark.any() else np.isin(role_of, (Role.OPTIMIZER, Role.DATA, Role.BACKWARD))
    modules = role_of == Role.OUR_MODULE
    if not modules.any():
        modules = np.isin(role_of, (Role.MODULE, Role.LOSS_MODULE, Role.REGION, Role.GRAPH))
    # A graph that runs inside a node belongs to backward. Its name does not identify its module.
    modules &= (role_of != Role.GRAPH) | (innermost_enclosing(role_parent, role_of == Role.NODE) == NONE)
    # Profilers of 2021 wrote marks as operators.
    operator = innermost_enclosing(parent, (kind == Kind.OPERATOR) & ~np.isin(role, _RANGE_ROLES))
    node = innermost(role_of == Role.NODE)
    return HostEvents(
        *nesting,
        role=role,
        operator=operator,
        outer_operator=outermost_enclosing(parent, operator),
        python=innermost_enclosing(parent, kind == Kind.PYTHON),
        node=node,
        outer_node=outermost_enclosing(parent, node),
        mark=innermost(is_mark),
        loss=innermost(np.isin(role_of, (Role.LOSS, Role.LOSS_MODULE))),
        module=innermost(modules),
        wrapper=innermost(role_of == Role.FORWARD),
        user_phase=innermost(role_of == Role.USER_PHASE),
        redo=innermost(modules | numbered[role_positions[:-1]]),
        numbered=np.flatnonzero(numbered).astype(np.int32),
        calls=role_positions[:-1][modules],
    )


def innermost_enclosing(parent: Ids, mask: Mask) -> Ids:
    """Return, for each position, the innermost position of `mask` that encloses it or is it, or NONE.

    Each round doubles the distance, so that deep nesting costs few rounds.
    """
    count = len(parent)
    position = np.append(np.where(parent == NONE, np.int32(count), parent), np.int32(count)).astype(np.int32)
    is_target = np.append(mask, True)
    position[is_target] = np.arange(count + 1, dtype=np.int32)[is_target]
    while True:
        next_position = position[position]
        if np.array_equal(next_position, position):
            break
        position = next_position
    position[position == count] = NONE
    return position[:-1]


def outermost_enclosing(parent: Ids, innermost: Ids) -> Ids:
    """Return, for each position, the outermost event of a kind that encloses it or is it, or NONE.

    `innermost` holds the innermost one.
    """
    outer = np.append(innermost, np.int32(NONE))
    pending = np.flatnonzero(outer[:-1] == np.arange(len(innermost)))  # the events of that kind
    parent_outer = outer[parent[pending]]
    jump = np.arange(len(outer), dtype=np.int32)
    jump[pending] = np.where(parent_outer == NONE, pending, parent_outer)
    while len(pending):
        pending = pending[jump[jump[pending]] != jump[pending]]
        jump[pending] = jump[jump[pending]]
    return np.where(innermost == NONE, np.int32(NONE), jump[innermost])

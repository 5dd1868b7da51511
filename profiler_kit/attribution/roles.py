"""What the name of a host event says that it is: a mark, a module's call, an autograd node, a loss."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import numpy as np

from profiler_kit.attribution.named import named
from profiler_kit.attribution.ownership import PHASE_NUMBERS
from profiler_kit.records import marks
from profiler_kit.traces.collectives import KERNEL, calls_collective
from profiler_kit.traces.names import (
    ACCUMULATE,
    GRAPH_PREFIX,
    LOADER_PREFIX,
    MODULE_PREFIX,
    NODE_PREFIX,
    OPTIMIZER_STEP,
    OPTIMIZER_ZERO,
    STEP_PREFIX,
)
from profiler_kit.traces.table import NONE, Bytes, Ids, Kind, Mask, Table


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


def roles(table: Table, rows: Ids) -> Bytes:
    """The role of each of the host events `rows`, by its name, and a node's by its numbers too."""
    used = np.zeros(len(table.names), dtype=bool)
    used[table.name[rows]] = True
    spoken = np.zeros(len(table.names), dtype=np.int8)
    called = np.zeros(len(table.names), dtype=np.int8)
    for number in np.flatnonzero(used).tolist():
        name = table.names[number]
        if name.startswith(MODULE_PREFIX):
            called[number] = _called(name)
        elif ".py(" in name:
            called[number] = next((role for role, pattern in _PYTHON if pattern.search(name)), Role.PLAIN)
        else:
            spoken[number] = _spoken(name)
    kind = table.kind[rows]
    name_of = table.name[rows]
    found = np.where(kind == Kind.PYTHON, called[name_of], spoken[name_of])
    found[kind == Kind.RUNTIME] = Role.PLAIN
    operator = kind == Kind.OPERATOR
    # A custom function's node has any name; only nodes say which thread their forward ran on.
    found[operator & (table.forward_thread[rows] != 0) & (table.sequence[rows] >= 0)] = Role.NODE
    # What authors call their own ranges is theirs.
    found[(kind == Kind.ANNOTATION) & np.isin(found, (Role.NODE, Role.LOSS))] = Role.PLAIN
    return found


def _called(name: str) -> Role:
    """The role of a module's call."""
    if name.startswith("GraphModule_", len(MODULE_PREFIX)):
        return Role.GRAPH
    return Role.LOSS_MODULE if _LOSS_MODULE.match(name, len(MODULE_PREFIX)) else Role.MODULE


def _spoken(name: str) -> Role:
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


def marked_phases(table: Table) -> Bytes:
    """For each name the phase that it marks, where it is a phase mark of ours, or NONE."""
    numbers: dict[str, int] = {marks.phase(phase): number for phase, number in PHASE_NUMBERS.items()}
    return np.array([numbers.get(name, NONE) for name in table.names], dtype=np.int8)


# ---- device


_FROM_HOST: Final = re.compile(r"HtoD|HostToDevice|Host -> Device")


def collectives(table: Table, rows: Ids) -> Mask:
    """For each of the device's events `rows` whether its name is a collective's."""
    return named(table.names, table.name[rows], KERNEL)


def from_host(table: Table, rows: Ids) -> Mask:
    """For each of the device's events `rows` whether it is a copy from the host."""
    copies: Mask = table.kind[rows] == Kind.MEMCPY
    return copies & named(table.names, table.name[rows], _FROM_HOST)

"""What a strict load of the first side's checkpoint reports, against torch itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from edited_networks import Net, ResBlock, compared, counted
from torch import nn

from profiler_kit.records.counts import ModuleNode
from profiler_kit.records.edits import CheckpointKind
from profiler_kit.records.report import Report


def tied() -> Net:
    model = Net()
    model.extra = nn.Linear(32, 10)
    model.extra.weight = model.fc.weight
    return model


def shared() -> Net:
    model = Net()
    model.again = model.layer1
    return model


def with_buffers() -> Net:
    model = Net()
    model.register_buffer("kept", torch.zeros(3))
    model.register_buffer("not_kept", torch.zeros(3), persistent=False)
    model.scale = nn.Parameter(torch.ones(()))
    return model


@functools.cache
def counted_base() -> Report:
    return counted(Net())


@pytest.mark.parametrize(
    "build",
    [
        lambda: Net(),
        lambda: Net(stride=1),
        lambda: Net(width=16),
        lambda: Net(depth=(1, 2, 4)),
        lambda: Net(depth=(1, 1, 2)),
        lambda: Net(last="stage3"),
        lambda: Net(block=ResBlock),
        lambda: Net(classes=7),
        tied,
        shared,
        with_buffers,
    ],
)
def test_the_numbers_are_those_of_a_strict_load(build: Callable[[], nn.Module]) -> None:
    base, head = (Net(), counted_base()), ((model := build()), counted(model))
    for (before, report_before), (after, report_after) in ((base, head), (head, base)):
        missing, unexpected, reshaped = strict_load(before, after)
        change = compared(report_before, report_after).checkpoint
        assert change is not None
        assert (change.missing, change.unexpected, change.reshaped) == (missing, unexpected, reshaped)
        assert change.is_compatible == (change.changed_keys == 0)
        keys = {
            kind: sum(group.keys for group in change.groups if group.kind == kind) for kind in get_args(CheckpointKind)
        }
        assert keys["reshaped"] == reshaped
        assert keys["unexpected"] + keys["renamed"] == unexpected
        assert missing - keys["renamed"] <= keys["missing"] <= missing


def strict_load(before: nn.Module, after: nn.Module) -> tuple[int, int, int]:
    """The numbers of missing, unexpected and reshaped keys by torch."""
    state: dict[str, Any] = before.state_dict()
    own = after.state_dict()
    reshaped = [key for key in state if key in own and state[key].shape != own[key].shape]
    fitting = state.copy()  # with the versions of its modules
    for key in reshaped:
        del fitting[key]
    result = after.load_state_dict(fitting, strict=False)
    return len(set(result.missing_keys) - set(reshaped)), len(result.unexpected_keys), len(reshaped)


def test_a_renamed_subtree_is_reported_once() -> None:
    comparison = compared(counted(Net()), counted(Net(last="stage3")))
    change = comparison.checkpoint
    assert change is not None
    (group,) = change.groups
    assert (group.kind, group.a_path, group.path, group.change) == ("renamed", "layer3", "stage3", "layer3 -> stage3")
    assert group.keys == change.unexpected == 25
    assert change.missing == 21  # torch adds the four counters of batches itself
    assert change.sentence in comparison.sentences


def test_a_compatible_change_says_nothing() -> None:
    comparison = compared(counted(Net()), counted(Net(stride=1)))
    assert comparison.checkpoint is not None
    assert comparison.checkpoint.is_compatible
    assert not any("heckpoint" in line for line in comparison.sentences)


def test_reports_without_state_are_not_judged() -> None:
    report = counted(Net())
    assert report.static is not None
    nodes: tuple[ModuleNode, ...] = tuple(replace(node, state=None) for node in report.static.modules)
    older = replace(report, static=replace(report.static, modules=nodes))
    assert compared(older, report).checkpoint is None

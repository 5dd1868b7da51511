"""A network whose layers have different widths: the shapes in its trace identify the module of each backward operator."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from inspection_traces import module_path, phase_name
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint
from torch_versions import needs_stacks

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE, Kind

STEPS = 2
MAX_OVERLAP_LAYERS = 8
MODES = ("eager", "checkpoint", "reentrant checkpoint")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width + 1, 3, padding=1)
        self.norm = nn.BatchNorm2d(width + 1)
        self.second = nn.Conv2d(width + 1, width + 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.norm(self.first(x)))))


class Net(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.stem = nn.Conv2d(3, 5, 3)
        self.blocks = nn.ModuleList([Block(5), Block(7)])
        self.tail = nn.Sequential(nn.Conv2d(9, 10, 1), nn.GELU(), Block(10))
        self.head = nn.Linear(12, 13)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for part in (*self.blocks, self.tail):
            x = checkpoint(part, x, use_reentrant="reentrant" in self.mode) if "checkpoint" in self.mode else part(x)
        return self.head(x.mean((2, 3)))


@cache
def traced(mode: str, with_stack: bool = True) -> Attribution:
    """The owners of two training steps on the CPU."""
    torch.manual_seed(0)
    net = Net(mode)
    run = torch.compile(net, backend="aot_eager") if mode == "compiled" else net
    loss_fn, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), 0.1)
    x, labels = torch.randn(2, 3, 8, 8), torch.randint(0, 13, (2,))

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_fn(run(x), labels)
        if mode == "gradient penalty":
            of_stem = torch.autograd.grad(loss, net.stem.weight, create_graph=True)[0]
            loss = loss + of_stem.square().sum()
        loss.backward()
        optimizer.step()
        loss.item()

    step()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        steps = schedule(wait=0, warmup=1, active=STEPS, repeat=1)
        activities = [ProfilerActivity.CPU]
        with profile(activities=activities, with_stack=with_stack, record_shapes=True, schedule=steps) as profiler:
            for _ in range(STEPS + 1):
                step()
                profiler.step()
        profiler.export_chrome_trace(str(path))
        return attribute(read(path))


def layers(attribution: Attribution) -> Iterator[tuple[tuple[int, ...], str, str]]:
    """Of each operator that works for one layer: what tells the layer apart, the operator's phase and module path."""
    table, host = attribution.table, attribution.host
    of_weight = {"aten::convolution": 1, "aten::convolution_backward": 2, "aten::addmm": 2, "aten::linear": 1}
    for position, row in enumerate(host.rows.tolist()):
        name = table.names[table.name[row]]
        if name in of_weight and table.shapes[row] != NONE:
            dims = json.loads(table.texts[table.shapes[row]])[of_weight[name]]
            key = tuple(sorted(dims[:2]))
            yield key, phase_name(host.phase[position]), module_path(attribution, host.module[position])


@needs_stacks
@pytest.mark.parametrize("mode", MODES)
def test_all_of_backward_has_the_module_of_its_forward(mode: str) -> None:
    result: dict[tuple[int, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for key, phase, path in layers(traced(mode)):
        result[key][phase].add(path)
    assert len(result) == MAX_OVERLAP_LAYERS + 1
    paths = set()
    for key, by_phase in result.items():
        again = {"recompute"} if "checkpoint" in mode and key not in {(3, 5), (12, 13)} else set()
        backward = (
            {"backward"} if key != (12, 13) else set()
        )  # a linear layer's backward has no shape of the weight in one place
        assert set(by_phase) >= {"forward"} | again | backward
        assert set(by_phase) <= {"forward", "backward"} | again
        assert len(set.union(*by_phase.values())) == 1
        paths |= by_phase["forward"]
    assert len(paths) == MAX_OVERLAP_LAYERS + 1
    assert all(path.startswith("Net_") for path in paths)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_stack", [pytest.param(True, marks=needs_stacks), False])
def test_every_operator_has_the_phase_of_where_it_stands(mode: str, with_stack: bool) -> None:
    attribution = traced(mode, with_stack)
    table, host = attribution.table, attribution.host
    operators = table.kind[host.rows] == Kind.OPERATOR
    by_phase: dict[str, set[str]] = defaultdict(set)
    for position in np.flatnonzero(operators).tolist():
        by_phase[phase_name(host.phase[position])].add(table.names[table.name[host.rows[position]]])
    assert {"aten::convolution", "aten::linear", "aten::native_batch_norm"} <= by_phase["forward"]
    assert {"aten::cross_entropy_loss", "aten::nll_loss_forward"} <= by_phase["loss"]
    assert {"aten::convolution_backward", "aten::nll_loss_backward", "aten::ones_like"} <= by_phase["backward"]
    assert not {name for name in by_phase["forward"] if "backward" in name or "autograd" in name}
    assert ("aten::convolution" in by_phase["recompute"]) == ("checkpoint" in mode)
    assert by_phase["other"] <= {"aten::item", "aten::_local_scalar_dense"}  # the loss, shown after the step
    assert "aten::add_" in by_phase["optimizer"]
    inside = (host.node != NONE) & operators & (host.phase != NONE)
    assert {phase_name(phase) for phase in host.phase[inside].tolist()} <= {"backward", "recompute"}
    if with_stack:
        assert (host.module[inside] != NONE).all()
    assert [step.number for step in attribution.steps] == [1, 2]


@pytest.mark.parametrize("with_stack", [pytest.param(True, marks=needs_stacks), False])
def test_a_backward_pass_that_makes_a_graph_does_nothing_again(with_stack: bool) -> None:
    result = {phase for _, phase, _ in layers(traced("gradient penalty", with_stack))}
    assert result == {"forward", "backward"}
    attribution = traced("gradient penalty", with_stack)
    assert "recompute" not in {phase_name(phase) for phase in attribution.host.phase.tolist()}


@needs_stacks
def test_compiled_work_has_its_region_both_ways() -> None:
    attribution = traced("compiled")
    assert attribution.compiled
    regions = {(phase, path) for key, phase, path in layers(attribution) if key != (12, 13)}
    assert {phase for phase, _ in regions} == {"forward", "backward"}
    assert len({path for _, path in regions}) == 1
    assert "Torch-Compiled Region" in next(iter(regions))[1]

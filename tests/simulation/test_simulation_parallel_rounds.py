"""Which loops over modules are heads beside each other and not layers in a row, in traces of small programs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.operator_loops import operator_loops
from profiler_kit.simulation.parallel_rounds import parallel_loops
from profiler_kit.traces.reader import read

ROUNDS, WIDTH = 10, 6
Modules = nn.ModuleList
Forward = Callable[[Modules, torch.Tensor], torch.Tensor]


def modules(width: int = WIDTH, out: int = WIDTH) -> Modules:
    return Modules(nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, out)) for _ in range(ROUNDS))


def heads(parts: Modules, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([part(x) for part in parts])


def layers(parts: Modules, x: torch.Tensor) -> torch.Tensor:
    for part in parts:
        x = part(x)
    return x


def residual(parts: Modules, x: torch.Tensor) -> torch.Tensor:
    for part in parts:
        x = x + part(x)
    return x


def dense(parts: Modules, x: torch.Tensor) -> torch.Tensor:
    outputs = [x]
    for part in parts:
        outputs.append(part(torch.cat(outputs, 1)))
    return torch.cat(outputs, 1)


def gated(parts: Modules, x: torch.Tensor) -> torch.Tensor:
    for part in parts:
        x = nn.functional.glu(part(x))
    return x


@pytest.mark.parametrize(
    ("forward", "parts", "expected"),
    [
        (heads, modules(), True),
        (heads, modules(out=2), True),
        (layers, modules(), False),
        (residual, modules(), False),
        (dense, Modules(m for i in range(ROUNDS) for m in modules(WIDTH * (i + 1))[:1]), False),
        (gated, modules(out=2 * WIDTH), False),
    ],
)
def test_rounds_that_read_the_same_value(forward: Forward, parts: Modules, expected: bool, tmp_path: Path) -> None:
    trunk, x = nn.Linear(3, WIDTH), torch.randn(4, 3)
    optimizer = torch.optim.SGD([*trunk.parameters(), *parts.parameters()], lr=0.1)
    plan = schedule(wait=0, warmup=1, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as recorded:
        for _ in range(4):
            forward(parts, trunk(x)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            recorded.step()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    attribution = attribute(read(tmp_path / "trace.json"))
    loops = operator_loops(attribution, 0, int(attribution.host.end_ns.max()) + 1)
    found = [
        is_parallel
        for loop, is_parallel in zip(loops.loops, parallel_loops(attribution, loops), strict=True)
        if "aten::linear" in loop.operators
    ]
    assert found == [expected]

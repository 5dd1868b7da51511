"""Attributes of ``self`` in a script's own classes, such as a trainer: arguments, losses and optimizers that they hold."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.counting import count_target
from profiler_kit.loading import Target, load
from profiler_kit.loading.program.places import place_of
from profiler_kit.loading.scripts.execution import EvaluationError
from profiler_kit.loading.scripts.source import open_source
from profiler_kit.records.target import TargetSpec

Write = Callable[[Mapping[str, str]], None]
NET = """\
from torch import nn
class Net(nn.Module):
    def __init__(self, width=1, depth=1):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])
    def forward(self, x):
        return self.layers(x)
"""
SOLVER = """\
import torch
from torch import nn
from net import Net

class Base:
    momentum = 0.5
    def __init__(self, options):
        self.depth = options.depth

class Solver(Base):
    def __init__(self, options, loader):
        super().__init__(options)
        self.model, self.criterion, self.optimizer = None, None, None
        self.options, self.loader = options, loader
        self.width = self.options.width + 1
        self.depth = 2 * options.depth

    def build(self):
        self.model = Net(width=self.width, depth=self.depth)
        self.criterion = nn.SmoothL1Loss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.options.lr, momentum=self.momentum)

    def train(self):
        for data, target in self.loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(data), target)
            loss.backward()
            self.optimizer.step()
"""
MAIN = """\
import argparse
import solver
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=6)
parser.add_argument("--depth", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.25)
options = parser.parse_args()
job = solver.Solver(options, None)
job.build()
job.train()
"""


def loaded() -> Target:
    target = load(TargetSpec(spec="net.py"), device="meta")
    count_target(target)
    return target


def test_a_solver_shows_arguments_loss_and_optimizer(write: Write) -> None:
    write({"net.py": NET, "solver.py": SOLVER, "main.py": MAIN})
    target = loaded()
    assert [tuple(layer.weight.shape) for layer in target.model.layers] == [(7, 7)] * 4
    assert target.info.loss == "SmoothL1Loss"
    (optimizer,) = [str(note) for note in target.info.notes if note.subject == "optimizer"]
    assert "SGD(lr=0.25, momentum=0.5)" in optimizer
    assert [choice.subject for choice in target.info.assumed] == ["inputs"]


def test_options_that_a_dict_passes(write: Write) -> None:
    main = MAIN.replace("solver.Solver(options, None)", "solver.Solver(**{'options': options, 'loader': None})")
    write({"net.py": NET, "solver.py": SOLVER, "main.py": main})
    assert [tuple(layer.weight.shape) for layer in loaded().model.layers] == [(7, 7)] * 4


def test_an_argument_without_a_value_is_assumed_to_be_its_default(write: Write) -> None:
    script = "from net import Net\nimport no_such_package\nif __name__ == '__main__':\n    net = Net(3, no_such_package.DEPTH)\n"
    write({"net.py": NET, "train.py": script})
    info = loaded().info
    assert [(c.value, c.options) for c in info.assumed if c.subject == "arguments"] == [
        ("depth=1", ("--kw", "depth=1"))
    ]
    assert info.confidence is not None
    assert info.confidence.arguments == "assumed"


def value(text: str) -> Any:
    Path("net.py").write_text(NET + text)
    source = open_source(TargetSpec(spec="net.py"))
    document = source.documents[0]
    call = next(
        node for node in ast.walk(document.tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Net"
    )
    return source.evaluator.value(place_of(document, call), call.args[0])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("        self.width = 4\n        net = Net(self.width)\n", 4),
        ("        self.a, self.b = 1, 2\n        net = Net(self.b)\n", 2),
        ("        self.a, self.b = divmod(17, 5)\n        net = Net(self.b)\n", 2),
        ("        self.size: int = 5\n        net = Net(self.size + self.more)\n    more = 3\n", 8),
        ("        self.width = None\n    def build(self):\n        self.width = 6\n        net = Net(self.width)\n", 6),
        ("        self.width = 7\n        def inner():\n            return Net(self.width)\n", 7),
    ],
)
def test_where_attributes_are_assigned(write: Write, body: str, expected: int) -> None:
    write({})
    assert value("class Job:\n    def __init__(self):\n" + body) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("        net = Net(self.width)\n", "no method of Job assigns self.width"),
        ("        self.width = self.width + 1\n        net = Net(self.width)\n", "no method of Job assigns self.width"),
        ("        self.width = 1 / 0\n        net = Net(self.width)\n", "ZeroDivisionError"),
    ],
)
def test_attributes_without_a_value_have_a_reason(write: Write, body: str, reason: str) -> None:
    write({})
    with pytest.raises(EvaluationError, match=reason):
        value("class Job:\n    def __init__(self):\n" + body)


def test_a_static_method_has_no_instance(write: Write) -> None:
    write({})
    with pytest.raises(EvaluationError, match="has no default, and no call passes it"):
        value("class Job:\n    @staticmethod\n    def build(job):\n        net = Net(job)\n")

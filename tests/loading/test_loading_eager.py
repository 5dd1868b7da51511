"""Counting imports neither torch's compiler nor its symbolic shapes without need, and compiles nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

NETS = """
import torch
import torch.utils.checkpoint
from torch import nn


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.positions = nn.Embedding(4, 4)  # torch.nn.init on meta tensors also calls `disable`
        nn.init.trunc_normal_(self.head.weight)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).mean((2, 3)))


class Recomputed(Plain):
    def forward(self, x):
        features = torch.utils.checkpoint.checkpoint(self.conv, x, use_reentrant=True)
        return self.head(features.mean((2, 3)))


def refuse(graph, example_inputs):
    raise AssertionError("the count must not compile")


class CompilesInForward(Plain):
    def forward(self, x):
        return torch.compile(super().forward, backend=refuse)(x)


class ReadsTheCompiler(Plain):
    def forward(self, x):
        import torch._dynamo
        from torch._dynamo.utils import counters

        torch._dynamo.graph_break()
        assert torch._dynamo.config.cache_size_limit > 0 and counters is not None
        return super().forward(x)
"""
SETUP = """
import sys
import torch
import profiler_kit
from profiler_kit.records.target import TargetSpec


def macs(name, **options):
    report = profiler_kit.count(TargetSpec(spec=f"nets.py:{name}", inputs=("2,3,8,8",), **options))
    assert report.static.memory is not None, report.static.notes
    return report.static.forward.macs


def compiler_is_unchanged():
    from torch._dynamo import eval_frame
    from torch.optim import Optimizer

    assert eval_frame._stance.stance == "default"
    for function in (Optimizer.add_param_group.__wrapped__, Optimizer.zero_grad.__wrapped__):
        assert getattr(function, "__dynamo_disable", None) is not function
    graphs = []
    torch.compile(lambda x: x + 1, backend=lambda graph, _: graphs.append(graph) or graph.forward)(torch.ones(2))
    assert len(graphs) == 1
"""

# Runs each program that it reads in a fork: torch is imported once, and its compiler in none before the program.
FORKS = f"""
import json, os, traceback
{SETUP}
for line in sys.stdin:
    folder, code = json.loads(line)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        failure = ""
        try:
            exec(code, globals())
        except BaseException:
            failure = traceback.format_exc()
        os.write(write, failure.encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        failure = pipe.read()
    _, status = os.waitpid(pid, 0)
    print(json.dumps([status, failure]), flush=True)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.mark.parametrize(
    "code",
    [
        """
for name in ("Plain", "Recomputed"):
    for options in ({}, {"optimizer": "sgd"}, {"mode": "infer"}):
        macs(name, **options)
assert "torch._dynamo" not in sys.modules and "_dynamo" not in vars(torch)
symbols = {"sympy", "torch.fx.experimental.symbolic_shapes"} & sys.modules.keys()
assert not symbols or torch.__version__ < (2, 13)  # older versions import them in more places
compiler_is_unchanged()
""",
        """
assert macs("CompilesInForward") == macs("Plain")
compiler_is_unchanged()
assert macs("CompilesInForward") == macs("Plain")  # now the compiler is loaded
compiler_is_unchanged()
""",
        """
assert macs("ReadsTheCompiler") == macs("Plain")
import torch._dynamo
assert torch._dynamo.__file__ and sys.modules["torch._dynamo"] is torch._dynamo
compiler_is_unchanged()
""",
        """
text = open("nets.py").read()
open("nets.py", "w").write("from torch._dynamo.utils import is_compile_supported\\n" + text)  # as libraries do
macs("Plain")
assert "torch._dynamo" not in sys.modules and "torch._dynamo.utils" not in sys.modules
from nets import is_compile_supported
assert is_compile_supported("cpu") in (True, False) and "torch._dynamo.convert_frame" in sys.modules
""",
        """
open("nets.py", "a").write('''
import sympy


class UsesSymbols(Plain):
    def forward(self, x):
        import sympy.core.symbol
        from torch.fx.experimental.symbolic_shapes import ShapeEnv, sym_eq

        assert isinstance(sympy.Integer(2), sympy.Basic) and not isinstance(2, sympy.Basic)
        assert sym_eq(x.shape, (2, 3, 8, 8)) and not sym_eq([1], [2]) and isinstance(ShapeEnv(), ShapeEnv)
        ragged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
        assert ragged.shape[2] == 3 and (ragged * 2).values().shape == (6, 3)
        return super().forward(x)
''')
assert macs("Plain") == macs("UsesSymbols")
from torch.fx.experimental import symbolic_shapes
import sympy
assert symbolic_shapes.__file__ and sympy.Symbol("a") + 0 == sympy.Symbol("a")
compiler_is_unchanged()
""",
    ],
    ids=["not imported", "compiles in forward", "reads the compiler", "library imports a check", "uses symbols"],
)
def test_a_count_leaves_the_compiler_alone(code: str, tmp_path: Path, forks: subprocess.Popen[str]) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(json.dumps([str(tmp_path), code]) + "\n")
    forks.stdin.flush()
    status, failure = json.loads(forks.stdout.readline())
    assert (status, failure) == (0, "")

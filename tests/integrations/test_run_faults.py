"""What happens to a program when something of `run` fails: nothing. Each function that runs inside a program fails once."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import pkgutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn

import fork_server
import pytest
import torch  # noqa: F401 the children have it

import profiler_kit.recording
from profiler_kit.integrations.program import Program
from profiler_kit.integrations.program_session import RunOptions, run_program

PROGRAM: Final = """
import copy, sys, torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
class Loss(nn.Module):
    def forward(self, a, b):
        return F.cross_entropy(a, b) + 0.1 * a.pow(2).mean()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 4)
    def forward(self, x):
        return self.last(self.first(x))
net, teacher, loss_of, losses = Net(), Net(), Loss(), []
traced = torch.jit.trace(Net(), torch.randn(2, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for number, (x, y) in enumerate(DataLoader(TensorDataset(torch.randn(240, 8), torch.randint(0, 4, (240,))), batch_size=8)):
    optimizer.zero_grad()
    output = net(x) if number % 2 else net.forward(x)
    with torch.no_grad():
        target = teacher(x)
    if number % 3 == 0:
        copy.deepcopy(net)(x)
    loss = loss_of(output, y) + F.mse_loss(output, target)
    if number % 5 == 0:
        loss = loss + 0.01 * torch.autograd.grad(loss, net.last.weight, create_graph=True)[0].pow(2).sum()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
open(sys.argv[1], "w").write(repr(losses))
"""
# They pass calls on to functions of ours, and have nothing of their own that could fail.
ROOTS: Final = ("OptimizerSteps._before_step", "OptimizerSteps._after_step", "OptimizerSteps._call")
SECONDS: Final = 60


def functions() -> Iterator[tuple[str, Any, str, CodeType]]:
    """Name, owner, attribute and code of the functions, methods and properties of the room, except those of its guard."""
    package = profiler_kit.recording
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        owned = [item for item in vars(module).values() if getattr(item, "__module__", None) == module.__name__]
        for item in owned if not found.name.endswith(".guard") else ():
            if isinstance(item, FunctionType) and not hasattr(item, "__wrapped__"):
                yield item.__qualname__, module, item.__name__, item.__code__
            for name, value in vars(item).items() if inspect.isclass(item) else ():
                code = getattr(getattr(value, "fget", value), "__code__", None)
                if code is not None and not name.startswith("__") and f"{item.__name__}.{name}" not in ROOTS:
                    yield f"{item.__name__}.{name}", item, name, code


def fail(*_: Any, **__: Any) -> NoReturn:
    raise LookupError("injected")


def break_function(owner: Any, name: str) -> None:
    original = vars(owner)[name]
    broken: Any = property(fail) if isinstance(original, property) else fail
    holders = [owner] if inspect.isclass(owner) else [m for n, m in sys.modules.items() if n.startswith("profiler_kit")]
    for holder in holders:
        if vars(holder).get(name) is original:
            setattr(holder, name, broken)


class Runs:
    """Runs of the program with `run`, each in a fork of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        fork_server.import_package()  # once, and not in each fork
        (folder / "train.py").write_text(PROGRAM)

    def status(self, name: str, prepare: Any) -> tuple[int, str]:
        """The exit status of a run, and what its program wrote."""
        out = self.folder / name
        out.mkdir()
        process = os.fork()
        if not process:
            self._run(out, prepare)
        deadline = time.monotonic() + SECONDS
        while not (ended := os.waitpid(process, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(process, 9)
            time.sleep(0.01)
        return os.waitstatus_to_exitcode(ended[1]), (out / "losses").read_text() if (out / "losses").exists() else ""

    def _run(self, out: Path, prepare: Any) -> NoReturn:
        status = 1
        gc.freeze()  # collections would copy the pages of all objects
        try:
            file = os.open(out / "log", os.O_CREAT | os.O_WRONLY)
            os.dup2(file, 1)
            os.dup2(file, 2)
            prepare()
            program = Program(name=str(self.folder / "train.py"), is_module=False, arguments=(str(out / "losses"),))
            run_program(program, RunOptions(out=out / "report", skip=2, steps=3, traced=1, quiet=True))
            status = 0
        finally:
            os._exit(status)


def called_functions(runs: Runs) -> list[tuple[str, Any, str]]:
    """The functions of the room that a run calls."""
    names = runs.folder / "names"

    def note() -> None:
        codes, seen = {code: name for name, _, _, code in functions()}, set()

        def profile(frame: Any, event: str, _: Any) -> None:
            name = codes.get(frame.f_code) if event == "call" else None
            if name is not None and name not in seen:
                seen.add(name)
                names.open("a").write(f"{name}\n")

        sys.setprofile(profile)

    assert runs.status("watched", note)[0] == 0
    called = {*names.read_text().splitlines()}
    return [(name, owner, attribute) for name, owner, attribute, _ in functions() if name in called]


@pytest.mark.jobs
@pytest.mark.timeout(600)
def test_no_failure_of_ours_reaches_the_program(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    status, losses = runs.status("unbroken", lambda: None)
    assert (status, (tmp_path / "unbroken/report/report.json").exists()) == (0, True)
    assert losses
    called = called_functions(runs)
    assert len(called) > 100
    harmed = [
        name for name, owner, attribute in called
        if runs.status(name, lambda o=owner, a=attribute: break_function(o, a)) != (0, losses)
    ]  # fmt: skip
    assert not harmed

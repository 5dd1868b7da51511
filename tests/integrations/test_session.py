"""`session` around loops of several kinds: the report, the phases, and that the loop is unchanged afterwards."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from simulated_clock import READING_NS, SimulatedClock
from torch import nn
from torch.nn import functional
from torch.profiler import profile, schedule

import profiler_kit
from profiler_kit.errors import UsageError
from profiler_kit.integrations.session import LoopSession
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.worker.tracing import write_trace


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.conv(x).relu().mean((2, 3)))
        return result


X, Y = torch.ones(4, 3, 12, 12), torch.zeros(4, dtype=torch.int64)
COUNTS = {"warmup": 2, "steps": 4, "traced": 2}
STEPS = 2 + 4 + 1 + 2


def train(model: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
    loss = functional.cross_entropy(model(X), Y)
    loss.item()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def recorded(s: LoopSession) -> tuple[Report, ConfigRun]:
    assert s.report is not None
    return s.report, s.report.runs[0]


def test_plain_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SimulatedClock().install(monkeypatch)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler_kit.session(model, tmp_path / "out", quiet=True, **COUNTS) as s:
        for i in range(STEPS + 3):
            assert s.is_recording == (i < STEPS)
            train(model, optimizer)
            s.step()
    report, run = recorded(s)
    static = profiler_kit.count(model, X, labels=Y, loss_fn=functional.cross_entropy).static
    assert report.static is not None
    assert static is not None
    assert report.static.forward == static.forward
    assert report.static.backward.flops == static.backward.flops
    assert {module.path for module in report.static.modules} == {"", "conv", "head", "(loss)"}
    assert [p.phase for p in run.phases] == ["forward", "loss", "backward", "optimizer", "other"]
    assert len(run.steps_ns) == 4
    assert run.step_ns is not None
    assert abs(sum(p.stopwatch_ns or 0 for p in run.phases) - run.step_ns.median) <= 10 * READING_NS
    assert run.traced_steps == 2
    assert {layer.path for layer in run.modules} >= {"conv", "head", "(loss)", "(optimizer)"}
    assert report.target.is_loop
    assert report.target.optimizer == "AdamW"
    assert report.static.memory is not None
    assert {f.name for f in (tmp_path / "out").iterdir()} == {"report.html", "report.json", "report.md", "traces"}
    assert profiler_kit.read_report(tmp_path / "out" / "report.json") == report
    assert "in the running loop" in (tmp_path / "out" / "report.md").read_text()


def test_loop_is_unchanged(tmp_path: Path) -> None:
    """The same random numbers and weights with and without a session, and no hook afterwards."""

    def weights(*, measured: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        s = profiler_kit.session(model, tmp_path / "out", quiet=True, **COUNTS)
        if measured:
            s.__enter__()
        for _ in range(STEPS + 2):
            model(torch.rand(4, 3, 12, 12)).square().sum().mul(random.random() + np.random.rand()).backward()
            optimizer.step()
            if measured:
                s.step()
        assert not model._forward_hooks
        assert not model._forward_pre_hooks
        return [parameter.detach().clone() for parameter in model.parameters()]

    for plain, measured in zip(weights(measured=False), weights(measured=True), strict=True):
        assert torch.equal(plain, measured)


def test_accumulation_and_autocast(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profiler_kit.session(model, tmp_path, quiet=True, **COUNTS) as s:
        for _ in range(STEPS):
            for _ in range(3):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = functional.cross_entropy(model(X), Y)
                loss.backward()
            optimizer.step()
            s.step()
    report, run = recorded(s)
    assert report.target.amp == "bfloat16"
    assert run.samples == 12
    assert any("3 times per step" in note for note in map(str, report.notes))


def test_inference(tmp_path: Path) -> None:
    model = Net().eval()
    with profiler_kit.session(model, tmp_path, quiet=True, **COUNTS) as s, torch.no_grad():
        for _ in range(STEPS):
            model(X)
            s.step()
    report, run = recorded(s)
    assert report.target.mode == "infer"
    assert [p.phase for p in run.phases] == ["forward", "other"]


@pytest.mark.parametrize(("steps", "timed", "traced"), [(4, 2, 0), (7, 4, 0), (8, 4, 1)])
def test_loop_that_ends_early(tmp_path: Path, steps: int, timed: int, traced: int) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profiler_kit.session(model, tmp_path, quiet=True, **COUNTS) as s:
        for _ in range(steps):
            train(model, optimizer)
            s.step()
    _, run = recorded(s)
    assert (len(run.steps_ns), run.traced_steps) == (timed, traced)


def test_end_of_the_program_while_the_trace_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal of a launcher ends the session a second time, inside of the first."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    s = profiler_kit.session(model, tmp_path, quiet=True, **COUNTS)
    written: list[Path] = []

    def write(profiler: object, path: Path) -> None:
        s.__exit__(None, None, None)
        write_trace(profiler, path)
        written.append(path)

    monkeypatch.setattr("profiler_kit.recording.loop.write_trace", write)
    with s:
        for _ in range(STEPS):
            train(model, optimizer)
            s.step()
    assert len(written) == 1
    assert recorded(s)[1].traced_steps == COUNTS["traced"]


def test_loop_without_a_timed_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Net()
    with profiler_kit.session(model, tmp_path / "out") as s:
        train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert s.report is None
    assert "6 steps are needed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_exception_keeps_what_was_measured(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    s = profiler_kit.session(model, tmp_path, quiet=True, **COUNTS)

    @s
    def fit() -> None:
        for _ in range(5):
            train(model, optimizer)
            s.step()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit()
    assert len(recorded(s)[1].steps_ns) == 3
    assert not torch.autograd._profiler_enabled()


def test_decorator(tmp_path: Path) -> None:
    model = Net()
    s = profiler_kit.session(model, tmp_path, quiet=True, **COUNTS)

    @s
    def fit(rate: float) -> str:
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for _ in range(STEPS):
            train(model, optimizer)
            s.step()
        return "done"

    assert fit(0.1) == "done"
    assert recorded(s)[1].traced_steps == 2


def test_loop_that_calls_parts_of_the_model(tmp_path: Path) -> None:
    """A module whose `forward` the loop never calls, as a LightningModule."""
    holder = nn.Module()
    holder.net = Net()
    optimizer = torch.optim.SGD(holder.parameters(), lr=0.1)
    with profiler_kit.session(holder, tmp_path, quiet=True, **{**COUNTS, "warmup": 1}) as s:
        for _ in range(STEPS + 2):
            train(holder.net, optimizer)
            s.step()
    report, run = recorded(s)
    assert report.target.name == "Net"
    assert {layer.path for layer in run.modules} >= {"conv", "head"}
    assert "forward" in [p.phase for p in run.phases]


def test_several_models(tmp_path: Path) -> None:
    models = nn.ModuleList([Net(), nn.Linear(4, 2)])
    optimizer = torch.optim.SGD(models.parameters(), lr=0.1)
    with profiler_kit.session(models, tmp_path, quiet=True, **COUNTS) as s:
        for _ in range(STEPS + 2):
            models[1](models[0](X)).sum().backward()
            optimizer.step()
            s.step()
    report, run = recorded(s)
    assert report.static is None
    assert any("several models: Net, Linear" in note for note in map(str, report.notes))
    assert {layer.path for layer in run.modules} >= {"0.conv", "1"}


@pytest.mark.parametrize("passed", ["wrapper", "inner"])
def test_compiled(tmp_path: Path, passed: str) -> None:
    model = Net()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session_model = model if passed == "inner" else compiled
    assert isinstance(session_model, nn.Module)
    with profiler_kit.session(session_model, tmp_path, quiet=True, **COUNTS) as s:
        for _ in range(STEPS):
            train(compiled, optimizer)
            s.step()
    report, run = recorded(s)
    assert report.static is not None
    assert {module.path for module in report.static.modules} == {"", "conv", "head", "(loss)"}
    assert [p.phase for p in run.phases] == ["forward", "loss", "backward", "optimizer", "other"]


def test_beside_another_profiler(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(), profiler_kit.session(model, tmp_path, quiet=True, **COUNTS) as s:
        for _ in range(STEPS):
            train(model, optimizer)
            s.step()
    report, run = recorded(s)
    assert run.traced_steps == 0
    assert any("another profiler" in note for note in map(str, report.notes))


def test_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected an nn\.Module"):
        profiler_kit.session("net.py")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one timed step"):
        profiler_kit.session(Net(), steps=0)
    s = profiler_kit.session(Net(), tmp_path)
    with pytest.raises(UsageError, match="outside the session"):
        s.step()
    with s, pytest.raises(UsageError, match="no phase 'fwd'"):
        s.phase("fwd")  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    model = Net()
    with pytest.raises(UsageError, match="is a file"), profiler_kit.session(model, blocked / "out"):
        pass
    with pytest.raises(UsageError, match="not a folder"):
        profiler_kit.trace_handler(blocked)
    assert not model._forward_hooks


def test_a_failure_is_printed_by_a_quiet_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder is replaced by a file while the loop runs, and the loop goes on."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profiler_kit.session(model, tmp_path / "out", quiet=True, **COUNTS) as s:
        (tmp_path / "out").write_text("")
        for _ in range(STEPS):
            train(model, optimizer)
            s.step()
    assert "no report" in capsys.readouterr().err
    assert s.report is not None


@pytest.mark.parametrize("steps", [1, 4, 8])  # a warm-up step, a timed one, a traced one
def test_two_threads(tmp_path: Path, steps: int) -> None:
    """Hooks and the profiler are those of the process: the second session is refused, and the first one is complete."""
    model, other = Net(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    errors: list[UsageError] = []

    def second() -> None:
        try:
            with profiler_kit.session(other, tmp_path / "second", quiet=True, **COUNTS):
                raise AssertionError("two sessions at a time")
        except UsageError as error:
            errors.append(error)

    with profiler_kit.session(model, tmp_path / "first", quiet=True, **COUNTS) as s:
        for i in range(STEPS):
            if i == steps:
                thread = threading.Thread(target=second)
                thread.start()
                thread.join()
            train(model, optimizer)
            s.step()
    assert len(errors) == 1
    assert "one loop at a time" in errors[0].message
    _, run = recorded(s)
    assert (len(run.steps_ns), run.traced_steps) == (COUNTS["steps"], COUNTS["traced"])
    assert not other._forward_hooks
    with profiler_kit.session(other, tmp_path / "second", quiet=True, **COUNTS) as s:  # now it may
        assert s.is_recording


@pytest.mark.parametrize("steps", [1, 8])
def test_a_session_without_an_end_gives_way(tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: int) -> None:
    """A trainer that fails leaves its session running; the next training in the notebook is recorded."""
    model, other = Net(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    abandoned = profiler_kit.session(model, tmp_path / "first", quiet=True, **COUNTS).__enter__()
    for _ in range(steps):
        train(model, optimizer)
        abandoned.step()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    with profiler_kit.session(other, tmp_path / "second", quiet=True, **COUNTS) as s:
        assert not model._forward_hooks
        for _ in range(STEPS):
            train(other, optimizer)
            s.step()
    assert recorded(s)[1].traced_steps == COUNTS["traced"]
    assert "the session before this one had no end" in capsys.readouterr().err


def test_trace_handler(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handler = profiler_kit.trace_handler(tmp_path)
    with profile(schedule=schedule(wait=0, warmup=1, active=2, repeat=2), on_trace_ready=handler) as profiler:
        for _ in range(6):
            train(model, optimizer)
            profiler.step()
    names = {f"{stem}_{i}.{suffix}" for i in (0, 1) for stem, suffix in
             (("trace", "json.gz"), ("report", "html"), ("report", "json"))}  # fmt: skip
    assert {file.name for file in tmp_path.iterdir()} == names
    assert json.loads((tmp_path / "report_1.json").read_text())["kind"] == "trace_report"

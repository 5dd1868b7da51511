"""The replay of hints can fail: each kind of bad hint is found, and good ones are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hint_replay import check, record

from profiler_kit import command_lines
from profiler_kit.cli import main
from profiler_kit.errors import TargetError
from profiler_kit.loading import load, targets
from profiler_kit.loading.command import bare_command, next_command
from profiler_kit.records.target import TargetSpec

pytestmark = pytest.mark.bad_hints

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = nn.Linear(4, width)

    def forward(self, x):
        return self.fc(x)


class Broken(Net):
    def forward(self, x):
        raise KeyError("scale")


def build():
    return None
"""
ERROR = "forward of Broken raised KeyError: 'scale'"
SPEC = TargetSpec(spec="net.py:Broken", inputs=("2,4",), command=("count", ""))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)


def problems(hint: Callable[[TargetSpec], str], monkeypatch: pytest.MonkeyPatch, message: str = ERROR) -> list[str]:
    """What the replay reports for an error with this hint, raised while `SPEC` is loaded."""

    def failing(spec: TargetSpec) -> None:
        raise TargetError(message, hint=hint(spec))

    monkeypatch.setattr(targets, "check_options", failing)
    with record() as recorder:
        with pytest.raises(TargetError):
            load(SPEC)
        recorder.is_active = False
        monkeypatch.undo()
        monkeypatch.chdir(recorder.hints[0].folder)
        assert len(recorder.hints) == 1
        return [problem.splitlines()[0].partition(": ")[2] for problem in check(recorder.hints)]


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        (lambda spec: f"fix it, then run {next_command(spec)}", "the hint repeats the command"),
        (lambda spec: "try again: profiler-kit count net.py:Broken -i 2,4 -q", "the hint repeats the command"),
        (lambda spec: "profiler-kit count net.py:Broken -i 2,4 --seed 0", "the hint repeats the command"),
        (lambda spec: next_command(spec, inputs=["3,4"]), "fails in the same way"),
        (lambda spec: f"use one of these: {next_command(spec, target='net.py:Net')}, or {next_command(spec)}", "repeats"),
        (lambda spec: next_command(spec, add=("--width", "3")), "not a valid command"),
        (lambda spec: "profiler-kit count net.py:Net counts it", "not a valid command"),
        (lambda spec: f"cd package && {next_command(spec)}", "fails in the same way"),
    ],
)  # fmt: skip
def test_a_bad_hint_is_found(hint: Callable[[TargetSpec], str], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = problems(hint, monkeypatch)
    assert len(texts) == 1
    assert problem in texts[0]


@pytest.mark.parametrize(
    "hint",
    [
        lambda spec: next_command(spec, target="net.py:Net"),
        lambda spec: f"cd package && {next_command(spec, target='net.py:Net')}",
        lambda spec: f"touch a.py && {next_command(spec, target='net.py:Net')}; a note",
        lambda spec: f"fill in: {next_command(spec, add=('--kw', 'width=...'))}",
        lambda spec: f"use another file: {bare_command(spec, 'my_model.py')}",  # fails in another way
        lambda spec: f"the options are in profiler-kit {spec.command[0]} --help",
    ],
)
def test_a_good_hint_passes(hint: Callable[[TargetSpec], str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(hint, monkeypatch) == []


def test_a_factory_that_returns_none_is_no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def hint(spec: TargetSpec) -> str:
        return next_command(spec, target="net.py:build")

    texts = problems(hint, monkeypatch, message="build() returned None")
    assert [text.partition(":")[0] for text in texts] == ["fails in the same way"]


def test_the_command_line_is_what_was_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(spec: TargetSpec) -> None:
        raise TargetError(ERROR, hint="profiler-kit count net.py:Broken -i 2,4")

    monkeypatch.setattr(targets, "check_options", failing)
    with record() as recorder:
        assert main(["count", "net.py:Broken", "-i", "2,4", "-q"]) == 3
        recorder.is_active = False
        assert "repeats the command" in check(recorder.hints)[0]
    assert recorder.hints[0].tried == ("count", "net.py:Broken", "-i", "2,4", "-q")
    assert command_lines.shlex.__name__ == "shlex"  # the recorder is removed

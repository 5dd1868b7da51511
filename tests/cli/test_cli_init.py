"""`init` and `check --accept` in a repository."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from profiler_kit.cli import main
from profiler_kit.errors import BUDGET_BROKEN, OK, USAGE

NET = """
import torch
from torch import nn

example_inputs = torch.zeros(2, 4)


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, width)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.hidden(x).relu())
"""
KEPT = b'# written by hand\r\n[build-system]\r\nrequires = [ "setuptools" ]   # no line end at the end'


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "pyproject.toml").write_bytes(KEPT)
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main"], check=True)
    return tmp_path


def commit() -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "add", "--all"], check=True)
    subprocess.run(["git", *identity, "commit", "--quiet", "-m", "change"], check=True)


@pytest.mark.jobs
def test_budgets_of_today_hold_break_and_are_accepted(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = repo / "pyproject.toml"
    assert main(["init", "net.py", "--kw", "width=16", "-i", "3,4", "-q"]) == OK
    shown = capsys.readouterr().out
    content = file.read_bytes()
    assert content.startswith(KEPT + b"\r\n\r\n[tool.profiler-kit.targets.net]\r\n")
    assert 'inputs = ["3,4"]\r\nkw = {width = 16}\r\n' in content.decode()
    assert "params = 119  # today 114 and 5 %" in shown
    commit()
    assert main(["check", "-q"]) == OK

    assert main(["init", "net.py", "-q"]) == USAGE
    assert file.read_bytes() == content
    assert '--accept "REASON"' in capsys.readouterr().err

    (repo / "net.py").write_text(NET.replace("nn.Linear(4, width)", "nn.Linear(4, width, bias=False)").replace(
        "nn.Linear(width, 2)", "nn.Sequential(nn.Linear(width, 64), nn.Linear(64, 2))"))  # fmt: skip
    assert main(["check", "-q"]) == BUDGET_BROKEN
    assert main(["check", "-q", "--accept", " "]) == USAGE
    assert file.read_bytes() == content
    capsys.readouterr()
    assert main(["check", "-q", "--accept", "a wider\nhead"]) == OK
    accepted = file.read_bytes()
    assert accepted.startswith(KEPT)
    assert b"params = 1282  # accepted 1,282 (base 114): a wider head\r\n" in accepted
    assert main(["check", "-q"]) == OK
    assert main(["check", "-q", "--accept", "nothing to accept"]) == OK
    assert file.read_bytes() == accepted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kw", "width=Config(3)"], "cannot be written into pyproject.toml"),
        (["--name", "flops"], "not the name of a target"),
    ],
)
def test_what_cannot_be_written(repo: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    (repo / "net.py").write_text(f"def Config(x):\n    return x\n{NET}")
    assert main(["init", "net.py", "-q", *words]) == USAGE
    assert message in capsys.readouterr().err
    assert (repo / "pyproject.toml").read_bytes() == KEPT


def test_a_new_file_where_there_is_none(repo: Path) -> None:
    (repo / "pyproject.toml").unlink()
    assert main(["init", "net.py:Net", "--name", "small", "-q"]) == OK
    assert (
        (repo / "pyproject.toml").read_text().startswith('[tool.profiler-kit.targets.small]\ntarget = "net.py:Net"\n')
    )


WIDER = NET.replace("width: int = 8", "width: int = 64")
TARGET = """
[tool.profiler-kit.targets.small]
target = "net.py:Net"

[tool.profiler-kit.budgets]
params = { increase = "10%" }
"""
UNKNOWN_OP = NET.replace(".relu()", ".relu() + mix(x).sum()").replace(
    "class Net",
    """
if not hasattr(torch.ops.cli_init, "mix"):
    torch.library.define("cli_init::mix", "(Tensor a) -> Tensor")
    torch.library.impl("cli_init::mix", "CompositeExplicitAutograd")(lambda a: torch.empty_like(a))
mix = torch.ops.cli_init.mix


class Net""",
)


def how_to_accept(shown: str) -> list[str]:
    """The words of the command that a result prints below "How to accept"."""
    lines = shown.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("How to accept"))
    words = shlex.split(lines[start + 1])
    assert words[0] == "profiler-kit"
    return words[1:]


@pytest.mark.parametrize(
    ("tables", "target", "words"),
    [
        ('[tool.profiler-kit.budgets]\nparams = "+10%"\n', "net.py", []),
        ("", "net.py", ["--budget", "flops=+10%", "--budget", "params@hid*=+1%", "--budget", "macs=+1000%"]),
        ('[tool.profiler-kit.budgets.net]\npeak = "1B"\n', "net.py", ["--budget", "largest_layer=1%"]),
        (TARGET, "small", []),
        ("", "net.py", ["--gpu", "A100", "--budget", "device_step=+0%", "--budget", "device_peak=1KiB"]),
        ("", "net.py", ["--strict"]),
    ],
)
def test_the_printed_command_accepts(
    repo: Path, capsys: pytest.CaptureFixture[str], tables: str, target: str, words: list[str]
) -> None:
    """Each with a saved report as the base, so that this process counts both sides."""
    (repo / "pyproject.toml").write_text(tables)
    assert main(["count", "net.py", "-q", "--gpu", "A100", "--hardware", "A100", "-o", "base.json"]) == OK
    (repo / "net.py").write_text(UNKNOWN_OP if "--strict" in words else WIDER)
    capsys.readouterr()
    assert main(["check", target, "-q", "--base", "base.json", *words]) == BUDGET_BROKEN
    accepting = how_to_accept(capsys.readouterr().out)
    assert accepting[:4] == ["check", target, "--base", "base.json"]
    assert "--strict" not in accepting
    assert main(accepting) == OK
    assert ("REASON" in (repo / "pyproject.toml").read_text()) == bool(tables)


@pytest.mark.parametrize("values", [("flops=+10%", "flops=+50%"), ("params@head=3", "params@head=off")])
def test_two_limits_on_one_metric_are_refused(
    repo: Path, capsys: pytest.CaptureFixture[str], values: tuple[str, str]
) -> None:
    commit()
    assert main(["check", "net.py", "-q", *(word for value in values for word in ("--budget", value))]) == USAGE
    assert f"--budget {values[0]}" in capsys.readouterr().err

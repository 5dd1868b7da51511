"""`init` and `check --accept` in a repository."""

from __future__ import annotations

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


def test_budgets_of_today_hold_break_and_are_accepted(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = repo / "pyproject.toml"
    assert main(["init", "net.py", "--kw", "width=16", "-i", "3,4", "-q"]) == OK
    shown = capsys.readouterr().out
    content = file.read_bytes()
    assert content.startswith(KEPT + b"\r\n\r\n[tool.profiler-kit.targets.net]\r\n")
    assert 'inputs = ["3,4"]\r\nkw = { width = 16 }\r\n' in content.decode()
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

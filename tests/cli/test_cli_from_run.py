"""``check`` and ``compare`` of revisions: both sides are loaded as the run of the script shows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from profiler_kit.cli import main

PROGRAM = """\
import sys
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(4, width)

    def forward(self, x):
        return self.fc(x)

if __name__ == "__main__":
    model = Net(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "net.py"
    file.write_text(PROGRAM)
    (tmp_path / ".gitignore").write_text("profiler_kit_out/\n")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "base")):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)
    seen = {
        "program": str(file), "digest": "", "arguments": ["10"], "inputs": ["x=2,4"], "mode": "train",
        "models": [{"class_name": "Net", "params": 50, "built_at": []}],
    }  # fmt: skip
    report = tmp_path / "profiler_kit_out" / "net" / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text(json.dumps({"target": {"seen": seen}}))
    return file


CHANGED = PROGRAM.replace("self.fc =", "self.extra = nn.Parameter(__import__('torch').ones(width))\n        self.fc =")


@pytest.mark.parametrize(("words", "expected"), [((), (50, 60)), (("--from-run", "none"), (5, 6))])
def test_both_sides(
    script: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: tuple[int, int]
) -> None:
    script.write_text(CHANGED)
    for command in (["check", "net.py", "--base", "HEAD"], ["compare", "HEAD:net.py", "net.py", "--static"]):
        assert main([*command, "-i", "2,4", "-f", "json", *words]) == 0
        result = json.loads(capsys.readouterr().out)
        metrics = result.get("comparison", result)["metrics"]
        assert next((m["a"], m["b"]) for m in metrics if m["metric"] == "params") == expected

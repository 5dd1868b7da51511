"""`make demo`: its commands run, and README shows lines that they print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_demo_prints_the_lines_in_readme() -> None:
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    printed: list[str] = []
    for line in recipe[1].splitlines():
        program, *arguments = shlex.split(line)
        assert program == "$(BIN)/python"
        run = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        printed += run.stdout.splitlines()
    block = re.search(r"Its output, shortened:\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    shown = [line for line in block[1].splitlines() if line != "..."]
    assert any("3.33x the work" in line for line in shown)
    assert any("16x16 kernel" in line for line in shown)
    assert [line for line in shown if line not in printed] == []

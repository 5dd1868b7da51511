"""`make demo`: its commands run, and README shows lines that they print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from profiler_kit.cli.commands import commands

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


def test_the_install_command_can_be_pasted_and_names_an_extra() -> None:
    """In the folder of a clone: no placeholder stands before it in the block."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installs = re.findall(r"^```\npip install -e '\.\[(\w+)\]'$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(installs) == 1
    assert set(installs) <= set(project["optional-dependencies"])


def test_the_environment_is_created_without_an_ignored_error() -> None:
    """make prints "Error 1 (ignored)" for a recipe line that begins with a dash."""
    assert not re.findall(r"^\t[@+]*-", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_security_lists_every_command() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(command.name for command in commands())

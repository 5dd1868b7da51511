"""A module that cannot be imported, or that another file shadows, is named in one line with status 3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_files import net

from profiler_kit.errors import TARGET_FAILED

pytestmark = pytest.mark.fresh_process


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("signal.py", "x = 1\n"),
        ("json.py", "x = 1\n"),
        ("typing.py", "x = 1\n"),
        ("torch.py", "x = 1\n"),
        ("numpy/__init__.py", "x = 1\n"),
        ("msgspec.py", "raise ValueError('shadow')\n"),
    ],
)
def test_a_shadowed_module_is_named_without_a_traceback(file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(net())
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    package_parent = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "profiler_kit", "count", "net.py", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package_parent)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.returncode, done.stdout) == (TARGET_FAILED, "")
    assert "Traceback" not in done.stderr
    assert file.partition(".")[0].partition("/")[0] in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 2

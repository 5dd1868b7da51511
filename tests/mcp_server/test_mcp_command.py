"""The command `mcp`: what it refuses before it serves."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from profiler_kit.cli import main
from profiler_kit.cli.commands.mcp import DEFAULT_OUT
from profiler_kit.errors import OK, USAGE


def test_without_the_package_the_install_command_is_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "profiler_kit.mcp_server.server", raising=False)
    assert main(["mcp"]) == USAGE
    assert "profiler-kit[mcp]" in capfd.readouterr().err


def test_folders_are_checked_before_it_serves(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mcp_types")
    (tmp_path / "file").touch()
    assert main(["mcp", "--root", str(tmp_path / "none")]) == USAGE
    assert main(["mcp", "--root", str(tmp_path), "--out", str(tmp_path / "file")]) == USAGE
    assert capfd.readouterr().err.count("error: ") == 2


def test_it_ends_with_stdin_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mcp_types")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    assert main(["mcp", "--root", str(tmp_path)]) == OK
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / DEFAULT_OUT).exists()

"""A folder of model files to be in, and reports made from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_files import write

from profiler_kit.cli import main


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of `cli_files`, and static reports of two of them: base.json (4 wide) and wide.json (8 wide)."""
    folder = tmp_path_factory.mktemp("cli")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["count", "net.py", "-q", "-o", "base.json"]) == 0
        assert main(["count", "wide.py", "-q", "-o", "wide.json"]) == 0
    whole = (folder / "base.json").read_text()
    (folder / "cut.json").write_text(whole[: len(whole) // 2])
    (folder / "missing.json").write_text(whole.replace('"created"', '"creatd"'))
    return folder


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of files, as the working directory."""
    monkeypatch.chdir(made)
    return made

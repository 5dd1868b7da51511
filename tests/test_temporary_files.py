"""Temporary folders and partial files, and what killed processes leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler_kit.temporary_files import FOLDER_NAME, remove_ownerless_folders, replacement, temporary_folder

# Creates a folder and a partial file, says so, and waits.
OWNER = """
import sys, time
from pathlib import Path
from profiler_kit.temporary_files import replacement, temporary_folder
with temporary_folder("worker") as folder, replacement(Path(sys.argv[1])) as partial:
    (folder / "sub").mkdir()
    (folder / "sub" / "file").touch()
    print(folder, partial, flush=True)
    time.sleep(300)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An own folder for temporary files, which has not been searched yet."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    remove_ownerless_folders.cache_clear()
    yield tmp_path / "tmp"
    remove_ownerless_folders.cache_clear()


@pytest.fixture
def owner(root: Path) -> Iterator[tuple[subprocess.Popen[str], Path, Path]]:
    """A process with a temporary folder and a partial file of ``report.json``, and their paths."""
    command = [sys.executable, "-c", OWNER, str(root.parent / "report.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, partial = map(Path, process.stdout.readline().split())
        yield process, folder, partial
        process.kill()


def test_a_folder_is_named_after_its_process_and_removed(root: Path) -> None:
    with temporary_folder("traces") as folder:
        assert folder.parent == root
        assert folder.name.startswith(f"profiler_kit_traces_{os.getpid()}_")
        assert FOLDER_NAME.fullmatch(folder.name)
        (folder / "file").touch()
    assert list(root.iterdir()) == []
    with pytest.raises(ZeroDivisionError), temporary_folder("traces"):
        raise ZeroDivisionError
    assert list(root.iterdir()) == []


def test_what_a_killed_process_leaves_is_removed_and_a_living_one_keeps_its_files(
    root: Path, owner: tuple[subprocess.Popen[str], Path, Path]
) -> None:
    process, folder, partial = owner
    output = root.parent / "report.json"
    own = [root / "profiler_kit_notes", root / "profiler_kit_worker_1_short", root.parent / ".report.json.mine"]
    for path in own:
        path.touch()
    with temporary_folder("worker"), replacement(output) as new:
        assert (folder / "sub" / "file").exists()
        assert partial.exists()
        new.write_text("{}")
    assert partial.exists()  # the other process still writes it
    process.kill()
    process.wait()
    assert (folder / "sub" / "file").exists()
    remove_ownerless_folders.cache_clear()  # as in a new process
    with temporary_folder("worker"), replacement(output) as new:
        assert not folder.exists()
        assert not partial.exists()
        new.write_text("{}")
    assert set(root.iterdir()) | {path for path in root.parent.iterdir() if path.is_file()} == {*own, output}


def test_a_folder_taken_for_ownerless_is_created_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may see a new folder before it is locked."""
    real = tempfile.TemporaryDirectory
    created: list[str] = []

    def new_folder(**options: object) -> object:
        folder = real(**options)  # type: ignore[call-overload]
        created.append(folder.name)
        if len(created) == 1:
            remove_ownerless_folders.cache_clear()
            remove_ownerless_folders(str(root))
        return folder

    monkeypatch.setattr(tempfile, "TemporaryDirectory", new_folder)
    with temporary_folder("worker") as folder:
        assert folder.exists()
    assert len(created) == 2
    assert list(root.iterdir()) == []


def test_a_failed_replacement_leaves_the_file_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")

    def interrupted_write() -> None:
        with replacement(file) as partial:
            partial.write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_write()
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert file.read_text() == "old"


def test_a_replacement_has_the_permissions_of_the_file_or_the_usual_ones(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        for mode in (None, 0o600):
            if mode is not None:
                (tmp_path / "a").chmod(mode)
            with replacement(tmp_path / "a") as partial:
                partial.write_text("x")
            assert (tmp_path / "a").stat().st_mode & 0o777 == (mode or 0o640)
    finally:
        os.umask(umask)

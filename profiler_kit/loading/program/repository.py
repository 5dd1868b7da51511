"""The repository around a file: its root and its Python files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from profiler_kit.user_code.locations import is_user_code

_ROOT_FILES: Final = (
    "setup.py",
    "pyproject.toml",
    "setup.cfg",
    "requirements.txt",
    "LICENSE",
    "README.md",
    "README.rst",
    "README",
)
_SKIPPED_FOLDERS: Final = {
    "node_modules",
    "site-packages",
    "__pycache__",
    "build",
    "dist",
    "venv",
    "env",
    "wandb",
    "outputs",
}
MAX_LEVELS: Final = 5  # folders above a file that can be the root of its repository
MAX_FILES: Final = 400
MAX_FILE_BYTES: Final = 200_000
MAX_TOTAL_BYTES: Final = 6_000_000


@lru_cache(maxsize=256)
def repository_root(file: Path) -> Path:
    """The folder with ``.git`` above `file`; otherwise the highest folder with a README, a license or a ``setup.py``.

    Without any of them, the folder of the file's package. Folders that many projects share never count: the home folder,
    the system's temporary folder, the root of the file system.
    """
    root = file.parent
    while (root / "__init__.py").is_file() and root.parent != root:
        root = root.parent
    limits = {Path.home(), Path(tempfile.gettempdir()), Path(file.anchor)}
    for folder in list(file.parents)[: MAX_LEVELS + 1]:
        if folder in limits:
            break
        if (folder / ".git").exists():
            return folder
        if any((folder / name).is_file() for name in _ROOT_FILES) and root.is_relative_to(folder):
            root = folder
    return root


def local_sources(file: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """The Python files of the repository and their texts, those nearest to `file` first; a bounded number and size.

    None for a file of an installed package: its other files are no programs of the user.
    """
    if not is_user_code(str(file)):
        return
    count = total = 0
    visited: set[Path] = set()
    for folder in (file.parent, *file.parents):
        if not folder.is_relative_to(root):
            return
        for path in _python_files(folder, visited):
            size = path.stat().st_size
            if path == file or size > MAX_FILE_BYTES:
                continue
            count, total = count + 1, total + size
            if count > MAX_FILES or total > MAX_TOTAL_BYTES:
                return
            try:
                yield path, path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # not readable by this user


def _python_files(folder: Path, visited: set[Path]) -> Iterator[Path]:
    """The Python files of `folder` and its subfolders that are not in `visited`, in a fixed order, the nearest first."""
    level = [folder]
    while level:
        deeper: list[Path] = []
        for current in level:
            if current in visited:
                continue
            visited.add(current)
            try:
                entries = sorted(os.scandir(current), key=lambda entry: entry.name)
            except OSError:
                continue  # not readable by this user
            for entry in entries:
                if entry.name.endswith(".py") and entry.is_file():
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False) and _is_source_folder(Path(entry.path)):
                    deeper.append(Path(entry.path))
        level = deeper


def _is_source_folder(folder: Path) -> bool:
    return (
        not folder.name.startswith(".") and folder.name not in _SKIPPED_FOLDERS and not (folder / "pyvenv.cfg").exists()
    )
